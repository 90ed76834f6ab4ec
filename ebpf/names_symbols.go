package ebpf

import "cowaudit/pagemap"

func newNames(o *Options) *names {
	return &names{open: func(pagemap.PID) (codeSpace, error) { return nil, pagemap.ErrGone }, shut: func() error { return nil }, spaces: map[SpaceID]codeSpace{}}
}
