package demoserver

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"cowaudit/internal/demoserver/child"
	"cowaudit/internal/host"
	"cowaudit/pagemap"
)

// Truth is what the server says of itself.
type Truth struct {
	PageSize  pagemap.Bytes `json:"page_size_bytes"`
	Regions   []Region      `json:"regions"`
	Processes []Process     `json:"processes"` // the master first
}

// Region is a part of the address space, the same in all processes.
type Region struct {
	Name  string       `json:"name"`
	Start pagemap.Addr `json:"start"`
	End   pagemap.Addr `json:"end"` // first address after it
}

// Process is one process and what must be counted of it in each region.
type Process struct {
	PID     pagemap.PID `json:"pid"`
	Name    string      `json:"name"`
	Did     []string    `json:"did"`     // since the fork
	Regions []Counts    `json:"regions"` // in the order of Truth.Regions
}

// Serve is the server: it forks its workers, lets all carry out the script, writes its Truth as one line of JSON and then
// holds still until its input ends. Its workers end with it.
func Serve(in io.Reader, out io.Writer) error {
	// Workers live as long as the thread that forks them, and orders to the master are carried out here too.
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // hold still: no collection while somebody looks
	s, err := newServer(shapes())
	if err != nil {
		return err
	}
	for _, sh := range []int{regionHeap, regionTable} {
		fill := order(child.OpWrite, uint64(sh), 0, 1, uint64(s.model.shapes[sh].filled), 0)
		if _, err := s.do(0, fill); err != nil {
			return err
		}
	}
	for range workers {
		if err := s.fork(); err != nil {
			return err
		}
	}
	for _, st := range script(uint64(os.Getpagesize()) / 8) {
		if _, err := s.do(st.proc, st.Order); err != nil {
			return fmt.Errorf("%s: %w", st.text, err)
		}
		s.procs[st.proc].did = append(s.procs[st.proc].did, st.text)
	}
	t, err := s.truth()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(t); err != nil {
		return fmt.Errorf("write the truth: %w", err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("wait for the end of input: %w", err)
	}
	return s.stop()
}

// server is the master's view: the memory, the processes and the model that follows them.
type server struct {
	memory *child.Memory
	starts []uintptr
	model  *model
	procs  []*proc // the master first
}

type proc struct {
	pid     int
	name    string
	did     []string
	orders  *os.File // the master's end; nil for the master
	answers *os.File
}

func newServer(shapes []shape) (*server, error) {
	m, starts, err := newMemory(shapes)
	if err != nil {
		return nil, err
	}
	zero, err := host.ZeroPage()
	if err != nil {
		return nil, fmt.Errorf("find out whether there is a zero page: %w", err)
	}
	master := &proc{pid: os.Getpid(), name: "master"}
	return &server{memory: m, starts: starts, model: newModel(shapes, zero), procs: []*proc{master}}, nil
}

// fork adds a worker, in the memory and in the model.
func (s *server) fork() error {
	name := fmt.Sprintf("worker %d", len(s.procs))
	w := &child.Worker{Parent: s.procs[0].pid, Memory: *s.memory}
	copy(w.Name[:len(w.Name)-1], "demo "+name)
	orders, toWorker, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open a pipe to %s: %w", name, err)
	}
	fromWorker, answers, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open a pipe from %s: %w", name, err)
	}
	w.Orders, w.Answers = orders.Fd(), answers.Fd() // Fd makes them blocking, as the worker needs them
	pid, err := child.Fork(w)
	orders.Close()
	answers.Close()
	if err != nil {
		toWorker.Close()
		fromWorker.Close()
		return err
	}
	s.procs = append(s.procs, &proc{pid: pid, name: name, orders: toWorker, answers: fromWorker})
	s.model.fork()
	return nil
}

// do has a process carry out an order, and the model after it. It gives the sum of child.OpRead.
func (s *server) do(proc int, o child.Order) (uint64, error) {
	if err := s.model.do(proc, o); err != nil { // checks the bounds, before anything is touched
		return 0, err
	}
	p := s.procs[proc]
	var a child.Answer
	if proc == 0 {
		s.memory.Do(&o, &a)
	} else {
		if _, err := p.orders.Write(unsafe.Slice((*byte)(unsafe.Pointer(&o)), unsafe.Sizeof(o))); err != nil {
			return 0, fmt.Errorf("send an order to %s: %w", p.name, err)
		}
		if _, err := io.ReadFull(p.answers, unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))); err != nil {
			return 0, fmt.Errorf("read the answer of %s: %w", p.name, err)
		}
	}
	if a.Errno != 0 {
		return 0, fmt.Errorf("order to %s: %w", p.name, unix.Errno(a.Errno))
	}
	return a.Sum, nil
}

func (s *server) truth() (*Truth, error) {
	t := &Truth{PageSize: pagemap.Bytes(s.memory.Page)}
	for i, sh := range s.model.shapes {
		start := pagemap.Addr(s.starts[i])
		t.Regions = append(t.Regions, Region{Name: sh.name, Start: start, End: start + pagemap.Addr(sh.pages)*pagemap.Addr(s.memory.Page)})
	}
	for i, p := range s.procs {
		pt := Process{PID: pagemap.PID(p.pid), Name: p.name, Did: p.did}
		for r := range s.model.shapes {
			c, err := s.model.counts(i, r)
			if err != nil {
				return nil, fmt.Errorf("what %s must show: %w", p.name, err)
			}
			pt.Regions = append(pt.Regions, c)
		}
		t.Processes = append(t.Processes, pt)
	}
	return t, nil
}

// stop ends the workers by closing their pipes, and waits for them.
func (s *server) stop() error {
	for _, p := range s.procs[1:] {
		p.orders.Close()
		p.answers.Close()
		var ws unix.WaitStatus
		for {
			_, err := unix.Wait4(p.pid, &ws, 0, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return fmt.Errorf("wait for %s (%d): %w", p.name, p.pid, err)
			}
			break
		}
		if !ws.Exited() || ws.ExitStatus() != 0 {
			return fmt.Errorf("%s (%d) ended with wait status %#x", p.name, p.pid, uint32(ws))
		}
	}
	s.procs = s.procs[:1]
	return nil
}
