package taskstats

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// await takes records until each of the processes has ended.
func await(t *testing.T, e *Exits, pids ...int) map[int]Counts {
	t.Helper()
	out := map[int]Counts{}
	limit := time.After(testkit.Timeout)
	for len(out) < len(pids) {
		select {
		case c, ok := <-e.C:
			if !ok {
				t.Fatal("the records ended")
			}
			for _, pid := range pids {
				if c.PID == pagemap.PID(pid) {
					out[pid] = c
				}
			}
		case <-limit:
			t.Fatalf("of %v ended %v", pids, out)
		}
	}
	return out
}

// The count of a process that ended inside of the window, with one thread and with several.
func TestExits(t *testing.T) {
	c := counting(t)
	for _, tt := range []struct {
		name    string
		write   string
		atMost  uint64 // what starting threads copies beside
		threads bool
	}{
		{"one thread", "w: write a 0 109 2", 109, false},
		{"several threads", "w: spread a 0 109 4", 109 + 16, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := pages(t, "anon warm 8", "write warm 0 8 1", "anon a 400", "write a 0 400 1", "fork w", "w: write warm 0 1 2", "stage go",
				tt.write, "w: exit", "fork v", "stage forked", "v: write a 0 151 3", "v: exit", "stage done")
			st := s.To("go")
			e, err := c.Exits()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() }) // once more, should the test end early
			before := readAll(t, c, st)["w"]
			wPID, vPID := st.Named["w"], s.To("forked").Named["v"]
			s.To("done")
			got := await(t, e, wPID, vPID)
			lost, err := e.Lost()
			if err != nil || lost != 0 {
				t.Errorf("lost %d, %v", lost, err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			s.Finish()
			w, v := got[wPID], got[vPID]
			if n, why := w.Since(&before); why != "" || n < 109 || n > tt.atMost {
				t.Errorf("w: %d copies, %q, want 109 to %d", n, why, tt.atMost)
			}
			if w.WPCopyKnown == tt.threads || !w.Ended || w.Version != c.Version() {
				t.Errorf("w: %+v", w)
			}
			// Forked inside of the window: its own stack and data count too.
			if !v.WPCopyKnown || v.WPCopy < 151 || v.WPCopy > 151+32 {
				t.Errorf("v: %+v", v)
			}
		})
	}
}

// What nobody takes is counted.
func TestExitsLost(t *testing.T) {
	full := &Exits{queue: make(chan Counts, 1)}
	for range 3 {
		if err := full.datagram(exitRecord(t, agroup), 0x20, Accounting{On: true}); err != nil {
			t.Fatal(err)
		}
	}
	if n := full.lost.Load(); n != 2 || len(full.queue) != 1 {
		t.Errorf("lost %d with %d in the queue, want 2 and 1", n, len(full.queue))
	}
	if err := full.datagram(exitRecord(t, 0), 0x20, Accounting{On: true}); err != nil || full.lost.Load() != 2 {
		t.Errorf("a thread's end that is not its process': lost %d, %v", full.lost.Load(), err)
	}
}

// A socket that is full loses records, and counts each of them.
func TestExitsFullSocket(t *testing.T) {
	c := counting(t)
	e, err := c.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.file.Close(); err != nil {
			t.Error(err)
		}
	}()
	raw, err := e.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var small error
	if err := raw.Control(func(fd uintptr) { small = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) }); err != nil || small != nil {
		t.Fatal(err, small)
	}
	const ends = 64
	for range ends {
		if err := exec.Command("true").Run(); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := e.Lost()
	if err != nil {
		t.Fatal(err)
	}
	var came int64
	var end error
	if err := raw.Control(func(fd uintptr) {
		buf := make([]byte, 64<<10)
		for ; end == nil; came++ {
			_, _, end = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		}
		came--
	}); err != nil || !errors.Is(end, unix.EAGAIN) {
		t.Fatal(err, end)
	}
	if lost == 0 || came == 0 || came+lost < ends {
		t.Errorf("%d records came and %d were lost, of %d at least", came, lost, ends)
	}
}
