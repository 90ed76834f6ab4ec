package pagemap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// SmapsEntry is one mapping of /proc/PID/smaps (Documentation/filesystems/proc.rst; fs/proc/task_mmu.c, show_smap), in
// bytes. Fields that a kernel does not print are 0. Mapping.Fork and Mapping.HugePage are filled from VmFlags.
type SmapsEntry struct {
	Mapping
	Rss, Pss                   Bytes // hugetlb pages are in neither
	SharedClean, SharedDirty   Bytes // "shared" counts mappings, not processes
	PrivateClean, PrivateDirty Bytes
	Referenced                 Bytes
	Anonymous                  Bytes // 2.6.34
	KSM                        Bytes // 6.6
	LazyFree                   Bytes // 4.12
	AnonHugePages              Bytes // 2.6.38
	SharedHugetlb              Bytes // 4.4
	PrivateHugetlb             Bytes // 4.4
	Swap, SwapPss              Bytes
	Locked                     Bytes
	KernelPageSize             Bytes
	MMUPageSize                Bytes
	// VmFlags are the two-letter flags (3.8). Nil: the kernel prints no such line; empty: no flag is set.
	VmFlags []string
}

// set stores a field and reports whether it has a place for it.
func (e *SmapsEntry) set(name []byte, v Bytes) bool {
	switch string(name) {
	case "Rss":
		e.Rss = v
	case "Pss":
		e.Pss = v
	case "Shared_Clean":
		e.SharedClean = v
	case "Shared_Dirty":
		e.SharedDirty = v
	case "Private_Clean":
		e.PrivateClean = v
	case "Private_Dirty":
		e.PrivateDirty = v
	case "Referenced":
		e.Referenced = v
	case "Anonymous":
		e.Anonymous = v
	case "KSM":
		e.KSM = v
	case "LazyFree":
		e.LazyFree = v
	case "AnonHugePages":
		e.AnonHugePages = v
	case "Shared_Hugetlb":
		e.SharedHugetlb = v
	case "Private_Hugetlb":
		e.PrivateHugetlb = v
	case "Swap":
		e.Swap = v
	case "SwapPss":
		e.SwapPss = v
	case "Locked":
		e.Locked = v
	case "KernelPageSize":
		e.KernelPageSize = v
	case "MMUPageSize":
		e.MMUPageSize = v
	default:
		return false
	}
	return true
}

// ForkRuleOf says what fork does with a mapping that has these VmFlags (kernel/fork.c, dup_mmap: VM_DONTCOPY is looked at
// first). Nil flags were not read.
func ForkRuleOf(vmflags []string) ForkRule {
	if vmflags == nil {
		return ForkUnread
	}
	rule := ForkCopied
	for _, f := range vmflags {
		switch f {
		case "dc":
			return ForkSkipped
		case "wf": // 4.14
			rule = ForkWiped
		}
	}
	return rule
}

// Smaps reads /proc/PID/smaps, which needs PTRACE_MODE_READ and walks the page tables: it costs far more than maps. What
// is said of consistency at [FS.Maps] holds here too, with fewer mappings in a chunk. Zombies and kernel threads: ErrNoMM.
func (f FS) Smaps(pid PID) ([]SmapsEntry, error) {
	h, err := os.Open(f.file(pid, "smaps"))
	if err != nil {
		return nil, readError(pid, "smaps", err)
	}
	defer h.Close()
	b, err := readTo(h, nil, -1)
	if err != nil {
		return nil, readError(pid, "smaps", err)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("read smaps of %d: %w", pid, ErrNoMM)
	}
	list, err := parseSmaps(b)
	if err != nil {
		return nil, fmt.Errorf("read smaps of %d: %w", pid, err)
	}
	var probe [1]byte // as in Maps
	if n, _ := h.ReadAt(probe[:], 0); n == 0 {
		return nil, fmt.Errorf("read smaps of %d: %w while it was read", pid, ErrGone)
	}
	return list, nil
}

// ParseSmaps parses a smaps file. Fields it does not know, with or without a unit, are passed over. Errors wrap ErrFormat
// and name the line.
func ParseSmaps(r io.Reader) ([]SmapsEntry, error) {
	b, err := readTo(r, nil, -1)
	if err != nil {
		return nil, fmt.Errorf("read smaps: %w", err)
	}
	list, err := parseSmaps(b)
	if err != nil {
		return nil, fmt.Errorf("parse smaps: %w", err)
	}
	return list, nil
}

func parseSmaps(b []byte) ([]SmapsEntry, error) {
	var list []SmapsEntry
	in := interner{}
	for line := 1; len(b) > 0; line++ {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return nil, fmt.Errorf("%w: line %d has no end: %.80q", ErrFormat, line, b)
		}
		text := b[:end]
		b = b[end+1:]
		name, value, isField := smapsField(text)
		switch {
		case !isField:
			list = append(list, SmapsEntry{})
			if !parseMapping(&list[len(list)-1].Mapping, text, &in) {
				return nil, fmt.Errorf("%w: line %d: %.80q", ErrFormat, line, text)
			}
		case len(list) == 0:
			return nil, fmt.Errorf("%w: line %d: a field before the first mapping: %.80q", ErrFormat, line, text)
		case string(name) == "VmFlags":
			e := &list[len(list)-1]
			e.VmFlags = vmFlags(value, &in)
		default:
			if err := list[len(list)-1].field(name, value); err != nil {
				return nil, fmt.Errorf("%w: line %d: %.80q", err, line, text)
			}
		}
	}
	for i := range list {
		e := &list[i]
		e.Fork = ForkRuleOf(e.VmFlags)
		for _, f := range e.VmFlags {
			if f == "ht" { // VM_HUGETLB
				e.HugePage = e.KernelPageSize
			}
		}
	}
	return list, nil
}

// smapsField splits a line at its colon. A field's name is one word that begins with a capital letter; the first line of
// a mapping begins with a hex digit in lower case.
func smapsField(line []byte) (name, value []byte, ok bool) {
	if len(line) == 0 || line[0] < 'A' || line[0] > 'Z' {
		return nil, nil, false
	}
	n := bytes.IndexByte(line, ':')
	if n < 0 {
		return nil, nil, false
	}
	return line[:n], bytes.TrimSpace(line[n+1:]), true
}

func (e *SmapsEntry) field(name, value []byte) error {
	v, err := kiloBytes(value)
	if err != nil {
		if e.set(name, 0) {
			return err
		}
		return nil // unknown, in a form of its own
	}
	e.set(name, v)
	return nil
}

// kiloBytes parses "N kB".
func kiloBytes(value []byte) (Bytes, error) {
	num, ok := bytes.CutSuffix(value, []byte(" kB"))
	if !ok {
		return 0, ErrFormat
	}
	v, ok := decimal(num)
	if !ok || v > (1<<63-1)/1024 {
		return 0, ErrFormat
	}
	return Bytes(v * 1024), nil
}

func vmFlags(value []byte, in *interner) []string {
	words := bytes.Fields(value)
	flags := make([]string, len(words))
	for i, w := range words {
		flags[i] = in.get(w)
	}
	return flags
}

// Rollup reads /proc/PID/smaps_rollup (4.14; fs/proc/task_mmu.c, show_smaps_rollup), which needs PTRACE_MODE_READ. The
// kernel walks the whole address space for it and lets go of the lock in between only when others wait for it. Zombies
// and kernel threads: [ErrNoMM]. Kernels without the file: [ErrNotSupported].
func (f FS) Rollup(pid PID) (Rollup, error) {
	b, err := f.read(pid, "smaps_rollup", nil)
	if err != nil {
		err = f.noMM(pid, "smaps_rollup", err)
		if errors.Is(err, ErrNoMM) {
			if _, serr := os.Stat(f.file(pid, "smaps_rollup")); errors.Is(serr, os.ErrNotExist) {
				return Rollup{}, fmt.Errorf("read smaps_rollup of %d: %w: there is no such file before 4.14", pid, ErrNotSupported)
			}
		}
		return Rollup{}, err
	}
	r, err := parseRollup(b)
	if err != nil {
		return Rollup{}, fmt.Errorf("read smaps_rollup of %d: %w", pid, err)
	}
	return r, nil
}

// ParseRollup parses a smaps_rollup file.
func ParseRollup(r io.Reader) (Rollup, error) {
	b, err := readTo(r, nil, -1)
	if err != nil {
		return Rollup{}, fmt.Errorf("read smaps_rollup: %w", err)
	}
	roll, err := parseRollup(b)
	if err != nil {
		return Rollup{}, fmt.Errorf("parse smaps_rollup: %w", err)
	}
	return roll, nil
}

// parseRollup takes the file for a smaps of one mapping, named [rollup], which has sums in the place of the mapping's
// own figures. The sums from Rss to Private_Dirty are in every kernel that has the file.
func parseRollup(b []byte) (Rollup, error) {
	list, err := parseSmaps(b)
	if err != nil {
		return Rollup{}, err
	}
	if len(list) != 1 || list[0].Path != "[rollup]" {
		return Rollup{}, fmt.Errorf("%w: not one [rollup] mapping", ErrFormat)
	}
	for _, name := range []string{"Rss", "Pss", "Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty"} {
		if !bytes.Contains(b, []byte("\n"+name+":")) {
			return Rollup{}, fmt.Errorf("%w: smaps_rollup without %s", ErrFormat, name)
		}
	}
	e := &list[0]
	return Rollup{
		RSS: e.Rss, PSS: e.Pss,
		SharedClean: e.SharedClean, SharedDirty: e.SharedDirty,
		PrivateClean: e.PrivateClean, PrivateDirty: e.PrivateDirty,
		Anonymous: e.Anonymous, KSM: e.KSM, AnonHugePages: e.AnonHugePages,
		SharedHugetlb: e.SharedHugetlb, PrivateHugetlb: e.PrivateHugetlb,
		Swap: e.Swap, SwapPSS: e.SwapPss,
	}, nil
}
