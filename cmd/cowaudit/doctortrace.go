package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"cowaudit/ebpf"
	"cowaudit/internal/host"
	"cowaudit/pagemap"
)

// traceRows say what the fault tracer has here. Each is tried: the last one loads and attaches the very programs that trace
// runs, in every way that there is, and takes them off again.
func traceRows() []host.Row {
	return []host.Row{kernelTypesRow(), tracepointsRow(), kernelSymbolsRow(), pidNamespaceRow(), lockdownRow(), tracerRow()}
}

func traceRow(name, since string) host.Row {
	return host.Row{Name: name, Group: host.Tracing, Since: since}
}

// withoutTracer is what is left without it.
const withoutTracer = "; audit, diff and forktest count the pages all the same, and do not say who wrote"

// kernelTypesRow: the kernel's own type information, by which the programs fit its layout.
func kernelTypesRow() host.Row {
	r := traceRow("kernel_types", "5.2")
	const file = "/sys/kernel/btf/vmlinux"
	info, err := os.Stat(file)
	switch {
	case err == nil:
		r.State, r.Detail = host.Yes, fmt.Sprintf("%s, %d KiB", file, info.Size()>>10)
	case errors.Is(err, fs.ErrNotExist):
		r.State, r.Detail, r.Remedy = host.No, file+" is not there"+withoutTracer, "a kernel with CONFIG_DEBUG_INFO_BTF"
	default:
		r.Detail = err.Error()
	}
	return r
}

// tracepointsRow: where the page faults are announced. tracefs lists them; all ways to attach but one do without it.
func tracepointsRow() host.Row {
	r := traceRow("fault_tracepoints", "3.13")
	if runtime.GOARCH != "amd64" {
		r.State, r.Detail = host.No, "exceptions:page_fault_user is not on "+runtime.GOARCH+withoutTracer
		return r
	}
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(root + "/events/exceptions/page_fault_user"); err == nil {
			r.State, r.Detail = host.Yes, "exceptions:page_fault_user and page_fault_kernel, in "+root
			return r
		}
	}
	r.Detail = "tracefs is not mounted where this process sees it: tp_btf and raw tracepoints do without, tracepoints do not"
	r.Remedy = "mount -t tracefs tracefs /sys/kernel/tracing"
	return r
}

// kernelSymbolsRow: without them the copies that system calls make are unknown, and those without a fault unseen.
func kernelSymbolsRow() host.Row {
	r := traceRow("kernel_symbols", "2.6")
	if err := ebpf.KernelSymbols(pagemap.FS("")); err != nil {
		r.State, r.Detail = host.Unknown, "copies made inside of system calls stay unknown: "+err.Error()
		if errors.Is(err, pagemap.ErrNotSupported) {
			r.State = host.No
		}
		r.Remedy = "run it as root, with kernel.kptr_restrict at most 1"
		return r
	}
	r.State, r.Detail = host.Yes, "copies that system calls make can be told, also those without a fault (O_DIRECT)"
	return r
}

func pidNamespaceRow() host.Row {
	r := traceRow("pid_namespace", "3.8")
	first, err := ebpf.HostPIDs(pagemap.FS(""))
	switch {
	case err != nil:
		r.Detail = err.Error()
	case first:
		r.State, r.Detail = host.Yes, "the host's: process ids are those that the kernel's side sees"
	default:
		r.State, r.Detail, r.Remedy = host.No, "not the host's: the tracer would see other processes"+withoutTracer, "run it on the host, or in a container with --pid=host"
	}
	return r
}

// lockdownRow: kernel lockdown in the mode confidentiality refuses the helpers that read memory.
func lockdownRow() host.Row {
	r := traceRow("kernel_lockdown", "5.4")
	b, err := os.ReadFile("/sys/kernel/security/lockdown")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.State, r.Detail = host.No, "not built in, or securityfs is not mounted"
	case err != nil:
		r.Detail = err.Error()
	default:
		mode := strings.TrimSpace(string(b))
		r.State, r.Detail = host.Yes, mode
		if strings.Contains(mode, "[confidentiality]") {
			r.Detail += ": refuses the tracer" + withoutTracer
			r.Remedy = "boot with lockdown=integrity, or without"
		}
	}
	return r
}

// tracerRow loads and attaches the tracer in each way that there is.
func tracerRow() host.Row {
	r := traceRow("fault_tracer", "5.17")
	var works []string
	var first error
	for _, v := range ebpf.Variants() {
		t, err := ebpf.Start(ebpf.Options{Variant: v, Collector: "none"})
		if err == nil {
			err = t.Close()
		}
		if err == nil {
			works = append(works, v)
		} else if first == nil {
			first = err
		}
	}
	switch {
	case len(works) > 0:
		r.State, r.Detail = host.Yes, "attaches by "+strings.Join(works, ", ")
	case errors.Is(first, pagemap.ErrNotSupported):
		r.State, r.Detail = host.No, first.Error()+withoutTracer
	default:
		r.Detail = first.Error() + withoutTracer
		r.Remedy = "run it as root (sudo), or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"
	}
	return r
}
