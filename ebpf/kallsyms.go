package ebpf

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"cowaudit/pagemap"
)

// extent is a stretch of addresses, end excluded.
type extent struct{ start, end uint64 }

// kernelSymbols are the functions of the kernel that are looked for on its stack, where neither the fault nor the user's
// registers say what an allocation is for.
type kernelSymbols struct {
	handleMMFault extent // mm/memory.c: every fault, also those of get_user_pages
	doWPPage      extent // mm/memory.c: copy or reuse of a write-protected page
	excPageFault  extent // arch/x86/mm/fault.c: faults by the processor
}

// known reports that all of them have been found.
func (k *kernelSymbols) known() bool {
	return k.handleMMFault.start != 0 && k.doWPPage.start != 0 && k.excPageFault.start != 0
}

var errSymbolsHidden = fmt.Errorf("%w: kallsyms hides the addresses of the kernel's functions (kernel.kptr_restrict) or lacks them", pagemap.ErrNotSupported)

// KernelSymbols says why the addresses of the kernel's functions are not to be had, without which a copy inside of a system
// call cannot be told from other allocations; nil: they are. The error wraps pagemap.ErrNotSupported where they are hidden.
func KernelSymbols(fs pagemap.FS) error {
	_, err := readKernelSymbols(fs)
	return err
}

// readKernelSymbols looks them up in /proc/kallsyms, which shows addresses to CAP_SYSLOG (kernel.kptr_restrict 1) or to
// nobody (2); then all are 0 and the error says so.
func readKernelSymbols(fs pagemap.FS) (kernelSymbols, error) {
	f, err := os.Open(fs.Path("kallsyms"))
	if err != nil {
		return kernelSymbols{}, err
	}
	defer f.Close()
	return parseKernelSymbols(f)
}

// parseKernelSymbols reads lines of "address type name [module]" (kernel/kallsyms.c, s_show); they are not in order. A
// function reaches to the next symbol.
func parseKernelSymbols(r io.Reader) (kernelSymbols, error) {
	var k kernelSymbols
	wanted := map[string]*extent{"handle_mm_fault": &k.handleMMFault, "do_wp_page": &k.doWPPage, "exc_page_fault": &k.excPageFault}
	var text []uint64
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line := sc.Text()
		addr, rest, ok := strings.Cut(line, " ")
		if !ok || len(rest) < 3 || (rest[0] != 't' && rest[0] != 'T') {
			continue
		}
		a, err := strconv.ParseUint(addr, 16, 64)
		if err != nil {
			return kernelSymbols{}, fmt.Errorf("%w: line %q of kallsyms", pagemap.ErrFormat, line)
		}
		if a == 0 {
			continue
		}
		text = append(text, a)
		name, _, _ := strings.Cut(rest[2:], "\t")
		// The compiler names a specialised copy name.isra.0 or name.constprop.0; name.cold is another place.
		base, suffix, _ := strings.Cut(name, ".")
		if e := wanted[base]; e != nil && !strings.HasPrefix(suffix, "cold") && (e.start == 0 || suffix == "") {
			e.start = a
		}
	}
	if err := sc.Err(); err != nil {
		return kernelSymbols{}, fmt.Errorf("read kallsyms: %w", err)
	}
	slices.Sort(text)
	for _, e := range wanted {
		i, _ := slices.BinarySearch(text, e.start+1)
		if e.start != 0 && i < len(text) {
			e.end = text[i]
		}
	}
	if !k.known() {
		return kernelSymbols{}, errSymbolsHidden
	}
	return k, nil
}
