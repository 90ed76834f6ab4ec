package demoserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/internal/host"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

const serveEnv = "COWAUDIT_DEMO_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) == "1" {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

func startTest(t *testing.T) *Server {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	s, err := start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTruthAgainstSmaps holds the model against the kernel's own account: Rss leaves the zero page out; private is what
// the process alone maps.
func TestTruthAgainstSmaps(t *testing.T) {
	s := startTest(t)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if len(s.Truth.Processes) != workers+1 || len(s.Truth.Regions) != len(shapes()) {
		t.Fatalf("truth has %d processes and %d regions", len(s.Truth.Processes), len(s.Truth.Regions))
	}
	for _, p := range s.Truth.Processes {
		for i, r := range s.Truth.Regions {
			rss, private := smaps(t, p.PID, r)
			c := p.Regions[i]
			if want := c.Held - c.Zero; rss != want {
				t.Errorf("%s, %s: smaps says %d resident, truth %d", p.Name, r.Name, rss, want)
			}
			want := c.Private
			if c.File > 0 {
				want = 0 // the master and worker 3 map it
			}
			if private != want {
				t.Errorf("%s, %s: smaps says %d private, truth %d", p.Name, r.Name, private, want)
			}
		}
	}
}

// smaps sums Rss and Private_* over the mappings of a region, in pages.
func smaps(t *testing.T, pid pagemap.PID, r Region) (rss, private int64) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside, found := false, false
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var a, b pagemap.Addr
		if n, _ := fmt.Sscanf(sc.Text(), "%x-%x ", &a, &b); n == 2 {
			inside = a >= r.Start && b <= r.End
			found = found || inside
			continue
		}
		key, rest, _ := strings.Cut(sc.Text(), ":")
		var kb int64
		if !inside {
			continue
		}
		fmt.Sscanf(rest, "%d", &kb)
		pages := kb * 1024 / int64(os.Getpagesize())
		switch key {
		case "Rss":
			rss += pages
		case "Private_Clean", "Private_Dirty":
			private += pages
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Fatalf("process %d has no mapping in %s %#x-%#x", pid, r.Name, r.Start, r.End)
	}
	return rss, private
}

// TestScriptCounts pins what the script amounts to: the number in each step's text, and prime counts.
func TestScriptCounts(t *testing.T) {
	s := startTest(t)
	defer s.Close()
	fresh := s.Truth.Processes[3].Regions[regionFresh]
	zero, err := host.ZeroPage()
	if err != nil {
		t.Fatal(err)
	}
	if !zero { // then what is only read is new too
		fresh.New, fresh.Zero = fresh.New-23, fresh.Zero+23
	}
	heap := func(p int) Counts { return s.Truth.Processes[p].Regions[regionHeap] }
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"worker 1 copied", heap(1).CopiedByWorker, 211},
		{"worker 1 rewritten", heap(1).Rewritten, 211},
		{"worker 2 copied", heap(2).CopiedByWorker, 307},
		{"worker 2 identical", heap(2).Identical, 307},
		{"worker 3 dropped", heap(3).Dropped, 89},
		{"worker 3 new", fresh.New, 401},
		{"worker 3 zero", fresh.Zero, 23},
		{"worker 3 shared memory", s.Truth.Processes[3].Regions[regionTable].File, 53},
		{"worker 1 copied by the master", heap(1).CopiedByReference, 101},
		{"worker 2 copied by the master", heap(2).CopiedByReference, 101},
		{"worker 3 copied by the master", heap(3).CopiedByReference, 101},
		{"worker 3 one word", heap(3).OneWord, 101},
		{"worker 1 kept", heap(1).Kept, 61},
		{"worker 1 shared", heap(1).Shared, 1992 - 211 - 101 - 61},
		{"worker 2 shared", heap(2).Shared, 1992 - 307 - 101 - 61},
		{"worker 3 shared", heap(3).Shared, 1992 - 89 - 101 - 61},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
		if !prime(c.got) {
			t.Errorf("%s: %d is not prime", c.name, c.got)
		}
	}
}

func prime(n int64) bool {
	for d := int64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// TestWorkersEndWithTheMaster kills the master in a way that it cannot notice.
func TestWorkersEndWithTheMaster(t *testing.T) {
	s := startTest(t)
	var fds []int
	for _, p := range s.Truth.Processes[1:] {
		fd, err := unix.PidfdOpen(int(p.PID), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil {
		t.Error("Close of a killed server reports nothing")
	}
	deadline := time.Now().Add(10 * time.Second)
	for i, fd := range fds {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(time.Until(deadline).Milliseconds())))
			if err == unix.EINTR {
				continue
			}
			if err != nil || n != 1 {
				t.Errorf("worker %d outlives its master: poll gives %d, %v", i+1, n, err)
			}
			break
		}
	}
}

// TestStartReportsWhatTheServerSaid runs something else in place of the server.
func TestStartReportsWhatTheServerSaid(t *testing.T) {
	_, err := Start(context.Background(), "/bin/sh", "sh", "-c", "echo cannot serve here >&2; exit 7")
	if err == nil || !strings.Contains(err.Error(), "cannot serve here") || !strings.Contains(err.Error(), "exit status 7") {
		t.Fatalf("got error %v", err)
	}
}
