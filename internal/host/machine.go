package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cowaudit/pagemap"
)

// host says what this machine does with memory that a reader of the numbers should know.
func (p *prober) host(own *page) []Row {
	return []Row{p.hugePages(), p.hugetlb(), p.zeroPage(), p.ksm(), p.swap(), p.softDirty(own), p.delays()}
}

// text reads a file of few bytes.
func text(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// chosen gives the word in brackets, "always [madvise] never".
func chosen(s string) string {
	_, rest, _ := strings.Cut(s, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

const hugeDir = "/sys/kernel/mm/transparent_hugepage"

// hugePages: transparent huge pages (2.6.38), and those of further sizes (6.8).
func (p *prober) hugePages() Row {
	r := Row{Name: "transparent_huge_pages", Group: Host, Since: "2.6.38"}
	s, err := text(hugeDir + "/enabled")
	if errors.Is(err, fs.ErrNotExist) {
		return p.absent(r, "CONFIG_TRANSPARENT_HUGEPAGE")
	}
	if err != nil {
		return p.cannotTell(r, err)
	}
	mode := chosen(s)
	// The setting of one size stands over the general one, unless it says "inherit".
	var on []string
	sizes, err := filepath.Glob(hugeDir + "/hugepages-*kB/enabled")
	if err != nil {
		return p.cannotTell(r, err)
	}
	for _, name := range sizes {
		s, err := text(name)
		if err != nil {
			return p.cannotTell(r, err)
		}
		if m := chosen(s); m != "never" && (m != "inherit" || mode != "never") {
			kB, _ := strings.CutPrefix(filepath.Base(filepath.Dir(name)), "hugepages-")
			on = append(on, strings.TrimSuffix(kB, "kB")+" kB")
		}
	}
	slices.SortFunc(on, func(a, b string) int { return kilobytes(a) - kilobytes(b) })
	r.State, r.Detail = No, "never"
	if mode != "never" || len(on) > 0 {
		r.State, r.Detail = Yes, mode
	}
	if len(on) > 0 {
		r.Detail += " (sizes: " + strings.Join(on, ", ") + ")"
	}
	return r
}

// kilobytes reads the number in "2048 kB".
func kilobytes(s string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(s, " kB"))
	if err != nil {
		return 0
	}
	return n
}

// hugetlb: the pools of reserved huge pages.
func (p *prober) hugetlb() Row {
	r := Row{Name: "hugetlb_pool", Group: Host}
	pools, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil {
		return p.cannotTell(r, err)
	}
	if len(pools) == 0 {
		return p.absent(r, "CONFIG_HUGETLB_PAGE")
	}
	var have []string
	for _, dir := range pools {
		n, err := text(dir + "/nr_hugepages")
		if err != nil {
			return p.cannotTell(r, err)
		}
		if n != "0" {
			have = append(have, n+" of "+strings.TrimPrefix(filepath.Base(dir), "hugepages-"))
		}
	}
	slices.Sort(have)
	r.State, r.Detail = No, "empty"
	if len(have) > 0 {
		r.State, r.Detail = Yes, strings.Join(have, ", ")+" pages: RSS leaves them out"
	}
	return r
}

// ZeroPage reports whether a read of private anonymous memory that was never written maps the kernel's zero page, as it does
// nearly everywhere (mm/memory.c, do_anonymous_page). Where it does not, such a read takes a page of its own: what is only
// read is then resident, is inherited by a fork, and counts as new, shared or copied. A kernel for virtual machines that
// cannot map one frame often may be built or booted so.
//
// It reads a page of its own and looks at bit 56 of its entry (4.2): the zero page is never mapped exclusively. It needs no
// privilege.
func ZeroPage() (bool, error) {
	p, err := mapPage()
	if err != nil {
		return false, err
	}
	defer p.unmap()
	if p.b[0] != 0 {
		return false, errors.New("a page never written holds something")
	}
	e, err := p.entry()
	if err != nil {
		return false, err
	}
	if !e.Present() {
		return false, errors.New("a page just read reads as not present")
	}
	return !e.Exclusive(), nil
}

// zeroPage: what is only read costs nothing.
func (p *prober) zeroPage() Row {
	r := Row{Name: "zero_page", Group: Host}
	zero, err := ZeroPage()
	switch {
	case err != nil:
		return p.cannotTell(r, err)
	case zero:
		r.State, r.Detail = Yes, "memory that is only read costs nothing"
	default:
		r.State, r.Detail = No, "memory that is only read takes pages: they count as new, shared or copied"
	}
	return r
}

// ksm: same-page merging (2.6.32).
func (p *prober) ksm() Row {
	r := Row{Name: "ksm", Group: Host, Since: "2.6.32"}
	run, err := text("/sys/kernel/mm/ksm/run")
	if errors.Is(err, fs.ErrNotExist) {
		return p.absent(r, "CONFIG_KSM")
	}
	if err != nil {
		return p.cannotTell(r, err)
	}
	merged, err := text("/sys/kernel/mm/ksm/pages_sharing")
	if err != nil {
		return p.cannotTell(r, err)
	}
	r.State, r.Detail = No, "does not run"
	if run == "1" {
		r.State, r.Detail = Yes, "runs"
	}
	if merged != "0" {
		r.Detail += ", " + merged + " pages are merged: they are counted apart"
	}
	return r
}

// swap: swap space in use, from /proc/swaps.
func (p *prober) swap() Row {
	r := Row{Name: "swap", Group: Host}
	s, err := text(p.fs.Path("swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return p.absent(r, "CONFIG_SWAP")
	}
	if err != nil {
		return p.cannotTell(r, err)
	}
	areas, size, used, err := parseSwaps(s)
	switch {
	case err != nil:
		return p.cannotTell(r, err)
	case areas == 0:
		r.State, r.Detail = No, "none"
	default:
		r.State, r.Detail = Yes, fmt.Sprintf("%d MiB, %d MiB of it used", size>>10, used>>10)
	}
	return r
}

// parseSwaps sums the sizes of /proc/swaps, in KiB.
func parseSwaps(s string) (areas int, size, used int64, err error) {
	for i, line := range strings.Split(s, "\n") {
		f := strings.Fields(line)
		if i == 0 || len(f) == 0 {
			continue // the head
		}
		if len(f) < 5 { // the name may hold escapes, and no blank
			return 0, 0, 0, fmt.Errorf("/proc/swaps: line %q: %w", line, pagemap.ErrFormat)
		}
		a, err1 := strconv.ParseInt(f[len(f)-3], 10, 64)
		b, err2 := strconv.ParseInt(f[len(f)-2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return 0, 0, 0, fmt.Errorf("/proc/swaps: line %q: %w: %w", line, pagemap.ErrFormat, err)
		}
		areas, size, used = areas+1, size+a, used+b
	}
	return areas, size, used, nil
}

// softDirty: bit 55 of the entry of a page written since the last reset (3.11, CONFIG_MEM_SOFT_DIRTY), set on any page just
// written. Not used: resetting it makes every later write of the target slower.
func (p *prober) softDirty(own *page) Row {
	r := Row{Name: "soft_dirty", Group: Host, Since: "3.11"}
	e, err := own.entry()
	if err != nil {
		return p.cannotTell(r, err)
	}
	if e&(1<<55) == 0 {
		r.Detail = "not used by cowaudit"
		r = p.absent(r, "CONFIG_MEM_SOFT_DIRTY")
		r.Remedy = ""
		return r
	}
	r.State, r.Detail = Yes, "not used by cowaudit: it would slow down the target"
	return r
}

// delays: task delay accounting counts copies in the kernel (taskstats wpcopy_count, 5.19), where it is switched on
// (kernel.task_delayacct, 5.14).
func (p *prober) delays() Row {
	r := Row{Name: "delay_accounting", Group: Host, Since: "5.19"}
	const what = "the kernel's own count of copies (wpcopy_count)"
	v, err := text(p.fs.Path("sys", "kernel", "task_delayacct"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.absent(r, "CONFIG_TASK_DELAY_ACCT")
	case err != nil:
		return p.cannotTell(r, err)
	case v == "0":
		r.State, r.Detail = No, "switched off: "+what+" stands still"
		r.Remedy = "sysctl kernel.task_delayacct=1 before the server is started (a little cost at each fault)"
	case p.before(r.Since):
		return p.absent(r, "")
	default:
		r.State, r.Detail = Yes, what+" runs"
	}
	return r
}
