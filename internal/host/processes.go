package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// processes probes what this process may know of others: all that are there are tried.
func (p *prober) processes() []Row {
	rows := []Row{p.who.row(), p.seen()}
	others, err := p.others()
	for _, a := range []access{
		{"process_maps", "the pages of", p.readMaps},
		{"process_contents", "what a write changed on a page of", p.readMemory},
	} {
		r := Row{Name: a.name, Group: Processes}
		if err != nil {
			rows = append(rows, p.cannotTell(r, err))
			continue
		}
		rows = append(rows, p.access(r, a, others))
	}
	return append(rows, p.kcmp(others))
}

// access is something to try on another process.
type access struct {
	name, what string
	try        func(pid int) error
}

// others lists the other processes that have an address space.
func (p *prober) others() ([]int, error) {
	tree, err := p.fs.Tree()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, pid := range tree.Descendants(0) {
		if s, ok := tree.Get(pid); ok && !s.KernelThread() && !s.Zombie() && int(pid) != os.Getpid() {
			out = append(out, int(pid))
		}
	}
	return out, nil
}

// seen: processes of other pid namespaces are not there at all, those of other users are left out by the mount option
// hidepid (Documentation/filesystems/proc.rst).
func (p *prober) seen() Row {
	r := Row{Name: "all_processes", Group: Processes, State: Yes, Detail: "all processes of this machine are seen"}
	if !p.who.initPID {
		r.State, r.Detail = No, "this is a pid namespace of its own: only its processes are seen"
		r.Remedy = "run it on the host (or with its pid namespace: docker run --pid=host)"
		return r
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return p.cannotTell(r, err)
	}
	if v := hidepid(string(b)); v != "" && !p.who.can(unix.CAP_SYS_PTRACE) {
		r.State, r.Detail = No, "/proc is mounted with hidepid="+v+": processes of others are hidden"
		r.Remedy = p.who.remedy()
	}
	return r
}

// hidepid gives the value of the option of the mount at /proc, "" for none or 0.
func hidepid(mountinfo string) (value string) {
	for _, line := range strings.Split(mountinfo, "\n") {
		f := strings.Fields(line)
		if len(f) < 6 || f[4] != "/proc" {
			continue
		}
		value = "" // a later mount covers an earlier one
		for _, o := range strings.Split(f[len(f)-1], ",") {
			if v, ok := strings.CutPrefix(o, "hidepid="); ok && v != "0" && v != "off" {
				value = v
			}
		}
	}
	return value
}

// access tries something on all other processes. Root with all capabilities may be refused a few, by a security module
// say; the others can be measured.
func (p *prober) access(r Row, a access, others []int) Row {
	may, not := 0, 0
	var first int // that was refused
	for _, pid := range others {
		switch err := a.try(pid); {
		case err == nil:
			may++
		case refused(err):
			if not++; not == 1 {
				first = pid
			}
		} // else it has ended
	}
	of := fmt.Sprintf(" %d of %d processes", may, may+not)
	switch {
	case may+not == 0:
		return p.cannotTell(r, errors.New("there is no other process to try it on"))
	case not == 0:
		r.State, r.Detail = Yes, a.what+fmt.Sprintf(" all %d processes", may)
		if may == 1 {
			r.Detail = a.what + " the one other process"
		}
		return r
	case may == 0:
		r.State, r.Detail = No, a.what+" no other process"
	case p.who.lacking() == "":
		r.State, r.Detail = Yes, a.what+of+fmt.Sprintf("; refused of process %d", first)
		if not > 1 {
			r.Detail += " and others"
		}
	default:
		r.State, r.Detail = No, a.what+of
	}
	if r.Remedy = p.who.remedy(); r.Remedy == "" {
		r.Remedy = "look for a security module (AppArmor, SELinux, Yama) that refuses it"
	}
	if scope := yama(); scope > 0 && a.name == "process_contents" {
		r.Detail += fmt.Sprintf(" (kernel.yama.ptrace_scope is %d)", scope)
		if scope == 3 {
			r.Remedy = "boot with kernel.yama.ptrace_scope below 3: it refuses everybody, and cannot be lowered"
		}
	}
	return r
}

func refused(err error) bool { return errors.Is(err, fs.ErrPermission) }

// yama gives kernel.yama.ptrace_scope (Documentation/admin-guide/LSM/Yama.rst), 0 where there is none.
func yama() int {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

// readMaps needs PTRACE_MODE_READ (fs/proc/task_mmu.c, proc_mem_open).
func (p *prober) readMaps(pid int) error {
	if _, err := p.fs.Maps(pagemap.PID(pid)); err != nil {
		return err
	}
	f, err := os.Open(p.fs.Path(strconv.Itoa(pid), "pagemap"))
	if err != nil {
		return err
	}
	return f.Close()
}

// readMemory needs PTRACE_MODE_ATTACH (fs/proc/base.c, mem_open): Yama has a say in it.
func (p *prober) readMemory(pid int) error {
	maps, err := p.fs.Maps(pagemap.PID(pid))
	if err != nil {
		return err
	}
	f, err := os.Open(p.fs.Path(strconv.Itoa(pid), "mem"))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, m := range maps {
		if !strings.HasPrefix(m.Perms, "r") || m.Special() {
			continue
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], int64(m.Start)); err != nil {
			return fmt.Errorf("read memory of %d: %w", pid, err)
		}
		return nil
	}
	return fmt.Errorf("process %d has no readable memory", pid)
}

// kcmp: kcmp(2) (3.5, CONFIG_KCMP) tells whether two processes are one address space.
func (p *prober) kcmp(others []int) Row {
	r := Row{Name: "kcmp", Group: Processes, Since: "3.5"}
	switch err := kcmpVM(os.Getpid(), os.Getpid()); {
	case errors.Is(err, syscall.ENOSYS):
		r.Detail = "processes that share an address space are not told from forks"
		return p.absent(r, "CONFIG_KCMP")
	case err != nil:
		return p.cannotTell(r, fmt.Errorf("compare this process with itself: %w", err))
	}
	return p.access(r, access{r.Name, "a shared address space of", func(pid int) error { return kcmpVM(os.Getpid(), pid) }}, others)
}

func kcmpVM(a, b int) error {
	const vm = 1 // KCMP_VM, include/uapi/linux/kcmp.h
	if _, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), vm, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
