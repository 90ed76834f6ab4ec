package forktest

import "cowaudit/pagemap"

// kernelCopies is the kernel's own count of a process' copy-on-write copies; or why it is not known.
type kernelCopies struct {
	n   int64
	why string
}

// until gives how far the count rose.
func (c kernelCopies) until(later kernelCopies) kernelCopies {
	switch {
	case c.why != "":
		return c
	case later.why != "":
		return later
	case later.n < c.n:
		return kernelCopies{why: "the count went down"}
	}
	return kernelCopies{n: later.n - c.n}
}

// copyCounter reads wpcopy_count, or says why it cannot.
type copyCounter interface {
	copies(pid pagemap.PID) kernelCopies
	close() error
}

// noCounter knows nothing.
type noCounter struct{ why string }

func (c noCounter) copies(pagemap.PID) kernelCopies { return kernelCopies{why: c.why} }

func (noCounter) close() error { return nil }

func openCounter() copyCounter { return noCounter{"not read here"} }
