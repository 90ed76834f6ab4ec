package demoserver

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"cowaudit/internal/demoserver/child"
)

// TestThousandForks forks from a Go program that is as busy as it can be: goroutines that allocate, collections one after
// the other, stacks that grow and move. Every worker must do its work, see the memory of the moment of its fork and end
// well.
func TestThousandForks(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				grow(64)
				runtime.GC()
			}
		})
	}
	defer wg.Wait()
	defer stop.Store(true)

	pageWords := uint64(unix.Getpagesize()) / 8
	for i := range n {
		sh := []shape{{name: "heap", pages: 7}, {name: "fresh memory", pages: 5}}
		s, err := newServer(sh)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.do(0, order(child.OpWrite, 0, 0, 1, 7, uint64(i)%pageWords)); err != nil {
			t.Fatal(err)
		}
		if err := s.fork(); err != nil {
			t.Fatalf("fork %d: %v", i, err)
		}
		if _, err := s.do(0, order(child.OpWrite, 0, 0, 1, 7, pageWords)); err != nil { // must not reach the worker
			t.Fatal(err)
		}
		want := uint64(0)
		for p := range uint64(7) {
			if v := child.Content(0, p, 0); uint64(i)%pageWords > 0 {
				want += ^v
			} else {
				want += v
			}
		}
		if got, err := s.do(1, order(child.OpRead, 0, 0, 1, 7, 0)); err != nil || got != want {
			t.Fatalf("worker %d reads %#x, %v; want %#x", i, got, err, want)
		}
		if got, err := s.do(1, order(child.OpRead, 1, 0, 1, 5, 0)); err != nil || got != 0 {
			t.Fatalf("worker %d reads %#x, %v from memory never written; want 0", i, got, err)
		}
		if _, err := s.do(1, order(child.OpWrite, 1, 1, 2, 2, pageWords)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.do(1, order(child.OpRead, 1, 1, 2, 2, 0)); err != nil || got != ^child.Content(1, 1, 0)+^child.Content(1, 3, 0) {
			t.Fatalf("worker %d reads %#x, %v from what it wrote", i, got, err)
		}
		if err := s.stop(); err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
		s.unmap(t)
	}
}

var sink atomic.Pointer[[512]byte]

//go:noinline
func grow(depth int) byte {
	var b [512]byte
	b[depth] = byte(depth)
	if depth == 0 {
		sink.Store(&b)
		return b[0]
	}
	return grow(depth-1) + b[depth]
}

// end is the address behind the last region.
func (s *server) end() uintptr {
	last := len(s.starts) - 1
	return s.starts[last] + uintptr(s.model.shapes[last].pages)*s.memory.Page
}

// unmap gives back what newMemory mapped.
func (s *server) unmap(t *testing.T) {
	t.Helper()
	start, end := s.starts[0]-s.memory.Page, s.end()+s.memory.Page
	if _, _, errno := unix.RawSyscall(unix.SYS_MUNMAP, start, end-start, 0); errno != 0 {
		t.Fatalf("munmap: %v", errno)
	}
}
