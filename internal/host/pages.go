package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// pages probes what can be known of a page.
func (p *prober) pages(own *page) []Row {
	entry, err := own.entry()
	frames := p.frames(entry, err)
	pfn, visible := entry.Frame()
	visible = visible && frames.State == Yes
	flags, word := p.flags(uint64(pfn), visible)
	return []Row{
		frames,
		flags,
		p.counts(uint64(pfn), visible),
		p.exclusive(word, flags.State, visible),
		p.mapcounts(),
		p.scan(),
		p.rollup(),
		p.names(),
	}
}

// frames: /proc/PID/pagemap (CONFIG_PROC_PAGE_MONITOR) shows the frame of a present page; 0 since 4.2 to who has no
// CAP_SYS_ADMIN in the initial user namespace (fs/proc/task_mmu.c pagemap_open, pagemap_read).
func (p *prober) frames(e pagemap.Entry, err error) Row {
	r := Row{Name: "frame_numbers", Group: Pages, Since: "2.6.25"}
	_, seen := e.Frame()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.Detail = "no /proc/self/pagemap"
		return p.absent(r, "CONFIG_PROC_PAGE_MONITOR")
	case err != nil:
		return p.cannotTell(r, err)
	case !e.Present():
		return p.cannotTell(r, fmt.Errorf("a page just written reads as %v", e))
	case !seen:
		r.State, r.Remedy = No, p.who.remedy()
		r.Detail = "hidden from this process: what is shared and what was copied cannot be told"
		return r
	}
	r.State, r.Detail = Yes, "shared and copied pages can be told, to the page"
	return r
}

// flags: /proc/kpageflags shows a frame's flags. Gives the word of the own page.
func (p *prober) flags(pfn uint64, visible bool) (Row, uint64) {
	r := Row{Name: "page_flags", Group: Pages, Since: "2.6.25"}
	const anon = 1 << 12 // KPF_ANON, include/uapi/linux/kernel-page-flags.h
	w, ok, r := p.frameFile(r, "kpageflags", pfn, visible)
	switch {
	case !ok:
		return r, 0
	case w&anon == 0:
		return p.cannotTell(r, fmt.Errorf("an anonymous page has the flags %#x", w)), 0
	}
	r.State, r.Detail = Yes, "who copied, merged pages and huge pages can be told"
	return r, w
}

// counts: /proc/kpagecount shows how often a frame is mapped.
func (p *prober) counts(pfn uint64, visible bool) Row {
	r := Row{Name: "page_counts", Group: Pages, Since: "2.6.25"}
	w, ok, r := p.frameFile(r, "kpagecount", pfn, visible)
	switch {
	case !ok:
		return r
	case w != 1:
		return p.cannotTell(r, fmt.Errorf("a page mapped once has the count %d", w))
	}
	r.State, r.Detail = Yes, "pages of huge pages that no other process maps can be told"
	return r
}

// frameFile reads a frame's word in one of the files that have one for each frame. They are mode 0400, and no more is asked
// than opening them.
func (p *prober) frameFile(r Row, name string, pfn uint64, visible bool) (word uint64, ok bool, _ Row) {
	f, err := os.Open(p.fs.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		r.Detail = "no /proc/" + name
		return 0, false, p.absent(r, "CONFIG_PROC_PAGE_MONITOR")
	}
	if errors.Is(err, fs.ErrPermission) {
		r.State, r.Remedy = No, p.who.remedy()
		r.Detail = "/proc/" + name + " may be opened by root only"
		return 0, false, r
	}
	if err != nil {
		return 0, false, p.cannotTell(r, err)
	}
	defer f.Close()
	if !visible {
		return 0, false, p.cannotTell(r, fmt.Errorf("/proc/%s can be opened, and no frame number is known to try it on", name))
	}
	if word, err = readWord(f, int64(pfn)); err != nil {
		return 0, false, p.cannotTell(r, err)
	}
	return word, true, r
}

// exclusive: PG_anon_exclusive (5.19, commit 6c287605fd56), which kpageflags shows as bit 34 of an anonymous page of base
// size: set on the page of who wrote, clear on the one that was left.
func (p *prober) exclusive(word uint64, flags State, visible bool) Row {
	r := Row{Name: "anon_exclusive", Group: Pages, Since: "5.19"}
	if flags != Yes || !visible {
		return p.cannotTell(r, errors.New("needs frame numbers and page flags"))
	}
	set, ok := pagemap.KFlags(word).AnonExclusive()
	switch {
	case !ok:
		return p.cannotTell(r, fmt.Errorf("not to be read from the flags %#x", word))
	case !set:
		r.Detail = "not set on a page just written: without a snapshot from before, who copied is \"undetermined\""
		return p.absent(r, "")
	}
	r.State, r.Detail = Yes, "which side copied can be told from a single look"
	return r
}

// mapcounts: CONFIG_NO_PAGE_MAPCOUNT (6.15, experimental) gives up the counts of single pages of large folios.
func (p *prober) mapcounts() Row {
	r := Row{Name: "page_mapcounts", Group: Pages}
	v, err := p.fs.KernelOption(p.release, "CONFIG_NO_PAGE_MAPCOUNT")
	switch {
	case err == nil && v == "y":
		r.State, r.Detail = No, "CONFIG_NO_PAGE_MAPCOUNT: \"private\" of huge pages is an estimate"
		r.Remedy = "a kernel without CONFIG_NO_PAGE_MAPCOUNT"
	case err == nil:
		r.State, r.Detail = Yes, "mappings are counted for each page, in huge pages too"
	case p.before("6.15"):
		r.State, r.Detail = Yes, "mappings are counted for each page: this kernel has no other way"
	default:
		r = p.cannotTell(r, errors.New("the kernel's configuration is neither in /proc/config.gz nor in /boot"))
		r.Remedy = "/boot/config-" + p.release + " of the running kernel"
	}
	return r
}

// scan: the PAGEMAP_SCAN ioctl (6.7).
func (p *prober) scan() Row {
	r := Row{Name: "pagemap_scan", Group: Pages, Since: "6.7"}
	ok, err := pagemap.ScanSupported()
	switch {
	case err != nil:
		return p.cannotTell(r, err)
	case !ok:
		r.Detail = "reserved memory that holds no page takes longer to read"
		return p.absent(r, "")
	}
	r.State, r.Detail = Yes, "reserved memory that holds no page costs nothing"
	return r
}

// rollup: /proc/PID/smaps_rollup (4.14).
func (p *prober) rollup() Row {
	r := Row{Name: "smaps_rollup", Group: Pages, Since: "4.14"}
	_, err := p.fs.Rollup(pagemap.PID(os.Getpid()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.Detail = "totals cannot be held against the kernel's own"
		return p.absent(r, "CONFIG_PROC_PAGE_MONITOR")
	case err != nil:
		return p.cannotTell(r, err)
	}
	r.State, r.Detail = Yes, "totals can be held against the kernel's own"
	return r
}

// names: prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME) (5.17, CONFIG_ANON_VMA_NAME), by which programs name their mappings.
func (p *prober) names() Row {
	r := Row{Name: "mapping_names", Group: Pages, Since: "5.17"}
	own, err := newPage()
	if err != nil {
		return p.cannotTell(r, err)
	}
	defer own.unmap()
	name, err := unix.BytePtrFromString("cowaudit doctor")
	if err != nil {
		return p.cannotTell(r, err)
	}
	err = unix.Prctl(unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME, own.address(), uintptr(len(own.b)), uintptr(ptr(name)))
	if errors.Is(err, syscall.EINVAL) {
		r.Detail = "anonymous mappings carry no names: Ruby's heap and others are told by their form"
		return p.absent(r, "CONFIG_ANON_VMA_NAME")
	}
	if err != nil {
		return p.cannotTell(r, fmt.Errorf("name a mapping: %w", err))
	}
	maps, err := p.fs.Maps(pagemap.PID(os.Getpid()))
	if err != nil {
		return p.cannotTell(r, err)
	}
	for _, m := range maps {
		if m.Start == pagemap.Addr(own.address()) && strings.Contains(m.Path, "cowaudit doctor") {
			r.State, r.Detail = Yes, "programs can name their anonymous mappings: Ruby from 3.4, glibc, jemalloc"
			return r
		}
	}
	return p.cannotTell(r, errors.New("a mapping was named and its name does not show"))
}
