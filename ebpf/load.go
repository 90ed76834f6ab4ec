package ebpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	cebpf "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// Ways to attach, best first: they see the same and differ in cost and in what they need.
const (
	VariantBTF        = "tp_btf"         // BPF_PROG_TYPE_TRACING, Linux 5.5
	VariantRaw        = "raw_tracepoint" // Linux 4.17
	VariantTracepoint = "tracepoint"     // Linux 4.7; needs tracefs to look up the tracepoints' numbers
)

// Variants lists the ways to attach in the order in which they are tried.
func Variants() []string { return []string{VariantBTF, VariantRaw, VariantTracepoint} }

// tracepoints that the programs sit on, by their group.
var tracepoints = []struct{ group, name string }{
	{"task", "task_newtask"},
	{"sched", "sched_process_exec"},
	{"sched", "sched_process_exit"},
	{"sched", "sched_process_free"},
	{"kmem", "rss_stat"},
	{"kmem", "mm_page_alloc"},
	{"exceptions", "page_fault_kernel"},
	{"exceptions", "page_fault_user"},
}

var prefixes = map[string]string{VariantBTF: "btf_", VariantRaw: "raw_", VariantTracepoint: "tp_"}

// Programs that every variant has.
const (
	probeProgram  = "gc_probe"
	settleProgram = "settle_all"
	enterProgram  = "enter_thread"
)

// loaded is a collection whose programs are attached.
type loaded struct {
	variant string
	coll    *cebpf.Collection
	links   []link.Link
}

func (l *loaded) close() error {
	err := l.unlink()
	if l.coll != nil {
		l.coll.Close()
		l.coll = nil
	}
	return err
}

// unlink takes the programs off the tracepoints, all at once: the kernel may wait for a grace period each time.
func (l *loaded) unlink() error {
	err := closeAll(l.links)
	l.links = nil
	return err
}

func closeAll(links []link.Link) error {
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	for i, k := range links {
		wg.Go(func() { errs[i] = k.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// nests reports a program that may come while it runs: an interrupt takes pages, and a program's own look into the
// target's memory may fault. Neither is of a traced thread's doing, and the kernel skips it (bpf_prog_inc_misses_counter).
func nests(tracepoint string) bool {
	return tracepoint == "mm_page_alloc" || tracepoint == "page_fault_kernel"
}

// detach takes the programs off the tracepoints, decides the faults that were still open, and gives the number of runs
// that the kernel skipped because the program (of tracepoints: any program, kernel/trace/bpf_trace.c, trace_call_bpf) was
// running on that processor already. A fault from user mode or a fork is skipped only where another thread's program was
// preempted or interrupted, which makes this a measure for all of them.
func (l *loaded) detach() (missed int64, err error) {
	errs := []error{l.unlink()}
	for _, tp := range tracepoints {
		if nests(tp.name) {
			continue
		}
		stats, err := l.coll.Programs[prefixes[l.variant]+tp.name].Stats()
		if err == nil {
			missed += int64(stats.RecursionMisses)
		} else if !errors.Is(err, cebpf.ErrNotSupported) {
			errs = append(errs, err)
		}
	}
	if _, err := l.coll.Programs[settleProgram].Run(&cebpf.RunOptions{}); err != nil {
		errs = append(errs, fmt.Errorf("settle the last faults: %w", err))
	}
	return missed, errors.Join(errs...)
}

// load tries the variants, each with the very programs that will run, and keeps the first that loads and attaches.
func load(o *Options, k kernelSymbols) (*loaded, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("%w: tracing faults needs x86-64 (exceptions:page_fault_user is not on %s)", pagemap.ErrNotSupported, runtime.GOARCH)
	}
	// Before 5.11 maps were charged to RLIMIT_MEMLOCK; the error, if any, shows when a map is made.
	_ = rlimit.RemoveMemlock()
	variants := Variants()
	if o.Variant != "" {
		if prefixes[o.Variant] == "" {
			return nil, fmt.Errorf("attach variant %q: one of %s", o.Variant, strings.Join(variants, ", "))
		}
		variants = []string{o.Variant}
	}
	var errs []error
	for _, v := range variants {
		l, err := loadVariant(o, k, v)
		if err == nil {
			return l, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", v, err))
	}
	return nil, explain(errors.Join(errs...))
}

func loadVariant(o *Options, k kernelSymbols, variant string) (_ *loaded, err error) {
	spec, err := loadFaults()
	if err != nil {
		return nil, err
	}
	keep := map[string]bool{probeProgram: true, settleProgram: true, enterProgram: true}
	for _, tp := range tracepoints {
		keep[prefixes[variant]+tp.name] = true
	}
	for name := range spec.Programs {
		if !keep[name] {
			delete(spec.Programs, name)
		}
	}
	if err := configure(spec, o, k); err != nil {
		return nil, err
	}
	l := &loaded{variant: variant}
	if l.coll, err = cebpf.NewCollection(spec); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = l.close()
		}
	}()
	if err := freeSlots(l.coll); err != nil {
		return nil, err
	}
	for _, tp := range tracepoints {
		p := l.coll.Programs[prefixes[variant]+tp.name]
		if p == nil {
			return nil, fmt.Errorf("no program for %s:%s", tp.group, tp.name)
		}
		var k link.Link
		switch variant {
		case VariantBTF:
			k, err = link.AttachTracing(link.TracingOptions{Program: p})
		case VariantRaw:
			k, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: tp.name, Program: p})
		default:
			k, err = link.Tracepoint(tp.group, tp.name, p, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("attach to %s:%s: %w", tp.group, tp.name, err)
		}
		l.links = append(l.links, k)
	}
	return l, nil
}

// configure fills in the settings, which the programs see as constants.
func configure(spec *cebpf.CollectionSpec, o *Options, k kernelSymbols) error {
	set := map[string]any{
		"want_stacks":           flag(o.Stacks),
		"want_records":          flag(o.Faults),
		"follow_forks":          flag(!o.NoFollow),
		"free_has_fixed_comm":   flag(freeHasFixedComm()),
		"handle_mm_fault_start": k.handleMMFault.start, "handle_mm_fault_end": k.handleMMFault.end,
		"do_wp_page_start": k.doWPPage.start, "do_wp_page_end": k.doWPPage.end,
		"exc_page_fault_start": k.excPageFault.start, "exc_page_fault_end": k.excPageFault.end,
	}
	for name, value := range set {
		v := spec.Variables[name]
		if v == nil {
			return fmt.Errorf("setting %s: not in the program", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	if o.RingBytes != 0 {
		if o.RingBytes < os.Getpagesize() || o.RingBytes&(o.RingBytes-1) != 0 {
			return fmt.Errorf("ring buffer of %d bytes: a power of two, at least a page", o.RingBytes)
		}
		spec.Maps["records"].MaxEntries = uint32(o.RingBytes)
	}
	pids, err := pidMax(o.FS)
	if err != nil {
		return err
	}
	spec.Maps["slots"].MaxEntries = uint32(pids/4 + 1)
	if !o.Stacks {
		spec.Maps["stacks"].MaxEntries = 1
	}
	if o.Faults {
		spec.Maps["counts_even"].MaxEntries, spec.Maps["counts_odd"].MaxEntries = 1, 1
	}
	return nil
}

// pidMax is the first process id that there is not: kernel.pid_max, which can be raised to 4,194,304 at any time; a thread
// beyond it is counted as lost.
func pidMax(fs pagemap.FS) (int, error) {
	b, err := os.ReadFile(fs.Path("sys", "kernel", "pid_max"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 1 || n > 1<<22 {
		return 0, fmt.Errorf("%w: kernel.pid_max is %q", pagemap.ErrFormat, b)
	}
	return n, nil
}

// freeSlots fills the queue of free thread slots; slot 0 stays unused.
func freeSlots(coll *cebpf.Collection) error {
	for i := uint32(1); i < coll.Maps["threads"].MaxEntries(); i++ {
		if err := coll.Maps["free_slots"].Put(nil, i); err != nil {
			return fmt.Errorf("fill the table of threads: %w", err)
		}
	}
	return nil
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// freeHasFixedComm reports the older layout of sched:sched_process_free (before 6.16 its comm was a field of 16 bytes).
// Only tracepoint programs look at it, and these need tracefs anyway.
func freeHasFixedComm() bool {
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		b, err := os.ReadFile(root + "/events/sched/sched_process_free/format")
		if err == nil {
			return strings.Contains(string(b), "char comm[16]")
		}
	}
	return false
}

// explain adds the remedy to an error of the kernel's.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		if os.Geteuid() != 0 {
			return fmt.Errorf("%w: the fault tracer needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE", err)
		}
		return fmt.Errorf("%w: this process may not load BPF programs: a container needs CAP_BPF and CAP_PERFMON and a seccomp profile that allows bpf(2); kernel lockdown must not be \"confidentiality\" (/sys/kernel/security/lockdown)", err)
	case errors.Is(err, btf.ErrNotSupported), errors.Is(err, os.ErrNotExist) && !exists("/sys/kernel/btf/vmlinux"):
		return fmt.Errorf("%w: the fault tracer needs the kernel's type information, /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)", err)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: tracepoints are looked up in tracefs: mount -t tracefs tracefs /sys/kernel/tracing", err)
	}
	return fmt.Errorf("%w: the fault tracer needs Linux 5.17 or later", err)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
