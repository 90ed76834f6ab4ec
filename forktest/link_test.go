package forktest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func testLink(t *testing.T) (*link, *os.File) {
	t.Helper()
	l, theirs, err := newLink()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close(); theirs.Close() })
	return l, theirs
}

// received gives the lines that came, and the senders.
func received(t *testing.T, l *link) (lines []string, from []pagemap.PID) {
	t.Helper()
	if err := l.receive(); err != nil {
		t.Fatal(err)
	}
	for {
		a, ok := l.next()
		if !ok {
			return lines, from
		}
		if a.err != nil {
			lines = append(lines, "error")
		} else {
			lines = append(lines, a.String())
		}
		from = append(from, a.from)
	}
}

// The kernel tells the sender, also where two write pieces of lines in turn.
func TestLinkTellsSenders(t *testing.T) {
	l, theirs := testLink(t)
	write := func(s string) {
		if _, err := theirs.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	write("hello a=1\nhalf")
	cmd := exec.Command("sh", "-c", "echo $$; echo 'other b=2' >&0")
	cmd.Stdin = theirs
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	write(" c=3\nBAD\n")
	lines, from := received(t, l)
	if diff := cmp.Diff([]string{"hello a=1", "other b=2", "half c=3", "error"}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	self, sh := pagemap.PID(os.Getpid()), pagemap.PID(cmd.Process.Pid)
	if diff := cmp.Diff([]pagemap.PID{self, sh, self, self}, from); diff != "" {
		t.Errorf("senders (-want +got):\n%s\nthe shell says it is %s", diff, out)
	}
	if l.closed {
		t.Error("closed")
	}
	theirs.Close()
	if lines, _ := received(t, l); len(lines) != 0 || !l.closed {
		t.Errorf("after the end: %q, closed %v", lines, l.closed)
	}
}

// A writer in a pid namespace of its own has the PID that this process' namespace gives it.
func TestLinkAcrossNamespaces(t *testing.T) {
	testkit.Require(t, "root", "pidns")
	l, theirs := testLink(t)
	cmd := exec.Command("unshare", "-p", "-f", "sh", "-c", `echo "me pid=$$" >&0; read -r _`)
	cmd.Stdin = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer l.close()
	fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, int(testkit.Timeout.Milliseconds())); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	lines, from := received(t, l)
	if diff := cmp.Diff([]string{"me pid=1"}, lines); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	st, err := pagemap.FS("").Stat(from[0])
	if err != nil || st.PPID != pagemap.PID(cmd.Process.Pid) {
		t.Errorf("sender %d: %+v, %v; want a child of %d", from[0], st, err, cmd.Process.Pid)
	}
	if got, err := descendant("", pagemap.PID(cmd.Process.Pid), 1); err != nil || got != from[0] {
		t.Errorf("process 1 in there is %d, %v; want %d", got, err, from[0])
	}
	if got, err := descendant("", pagemap.PID(cmd.Process.Pid), from[0]); !errors.Is(err, pagemap.ErrGone) {
		t.Errorf("process %d in there is %d, %v; there is none", from[0], got, err)
	}
}

func TestLinkRefusesEndlessLines(t *testing.T) {
	l, _ := testLink(t)
	l.take(7, make([]byte, maxLine))
	if a, ok := l.next(); ok {
		t.Fatalf("too early: %+v", a)
	}
	l.take(7, []byte("x"))
	if a, ok := l.next(); !ok || !errors.Is(a.err, errProtocol) || a.from != 7 {
		t.Errorf("got %+v, %v", a, ok)
	}
	if len(l.parts) != 0 {
		t.Error("the line is still kept")
	}
}

// Descriptors sent along are closed, and never end up in this process.
func TestLinkTakesNoDescriptors(t *testing.T) {
	l, theirs := testLink(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := unix.Sendmsg(int(theirs.Fd()), []byte("hello\n"), unix.UnixRights(int(w.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.receive(); err != nil && !errors.Is(err, errProtocol) {
		t.Fatal(err)
	}
	w.Close()
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the pipe's other end is still open: %d, %v", n, err)
	}
}

// Orders larger than the socket's buffer go out as it empties.
func TestLinkFlushesInParts(t *testing.T) {
	l, theirs := testLink(t)
	big := strings.Repeat("x", 1<<20)
	l.send(big + "\n")
	l.flush()
	if len(l.out) == 0 || len(l.out) > 1<<20 {
		t.Fatalf("%d bytes left of %d", len(l.out), len(big)+1)
	}
	var got int
	buf := make([]byte, 1<<16)
	for got < len(big)+1 {
		n, err := theirs.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += n
		l.flush()
	}
	if len(l.out) != 0 {
		t.Errorf("%d bytes left", len(l.out))
	}
}
