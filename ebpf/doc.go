// Package ebpf gathers facts about page faults: who writes to pages that are still shared, where, in which function, and
// during which garbage collection.
//
// The programs (bpf/faults.bpf.c) sit on tracepoints alone, no kprobes and no fentry, which locked-down hosts refuse. A
// write-protection fault is only an upper bound for a copy: what the same thread does inside of the fault tells a copy from
// a reuse in place, from the first write on the zero page, from a private file page and from a new page.
//
// Needs Linux 5.17 on x86-64 (exceptions:page_fault_user; bpf_find_vma), kernel BTF (CONFIG_DEBUG_INFO_BTF), and root or
// CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; the host's PID namespace.
package ebpf
