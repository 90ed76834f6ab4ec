package host

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// who is the one who asks: the user and what the kernel lets this process do.
type who struct {
	uid       int
	name      string
	sudoUser  string // who called sudo
	sudoUID   int    // -1: nobody
	sudoGID   int
	effective uint64 // capabilities, from /proc/self/status
	initUser  bool   // in the initial user namespace
	initPID   bool   // in the initial pid namespace
}

// The inode numbers of the initial namespaces (include/linux/proc_ns.h: PROC_USER_INIT_INO, PROC_PID_INIT_INO).
const (
	userInitNS = "user:[4026531837]"
	pidInitNS  = "pid:[4026531836]"
)

func lookWho() who {
	w := who{uid: os.Geteuid(), sudoUID: -1, sudoGID: -1}
	w.name = strconv.Itoa(w.uid)
	if u, err := user.LookupId(w.name); err == nil {
		w.name = u.Username
	}
	if id, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && id > 0 && w.uid == 0 {
		if gid, err := strconv.Atoi(os.Getenv("SUDO_GID")); err == nil {
			w.sudoUID, w.sudoGID, w.sudoUser = id, gid, os.Getenv("SUDO_USER")
		}
	}
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		w.effective = parseCapabilities(string(b))
	}
	ns, err := os.Readlink("/proc/self/ns/user")
	w.initUser = err == nil && ns == userInitNS || os.IsNotExist(err) // without CONFIG_USER_NS there is only one
	ns, err = os.Readlink("/proc/self/ns/pid")
	w.initPID = err == nil && ns == pidInitNS || os.IsNotExist(err)
	return w
}

// parseCapabilities reads CapEff of /proc/PID/status.
func parseCapabilities(status string) uint64 {
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return 0
	}
	return v
}

func (w *who) can(capability int) bool { return w.effective>>capability&1 == 1 }

// wanted are the capabilities that measuring uses.
var wanted = []struct {
	number int
	name   string
}{
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
}

// lacking names those that this process does not have.
func (w *who) lacking() string {
	var out []string
	for _, c := range wanted {
		if !w.can(c.number) {
			out = append(out, c.name)
		}
	}
	return strings.Join(out, ", ")
}

// remedy is what gives this process the right to look.
func (w *who) remedy() string {
	lacks := w.lacking()
	switch {
	case !w.initUser:
		return "run it as root of the host: root of a container with a user namespace of its own is not"
	case w.uid != 0 && lacks != "":
		return "run it as root: sudo cowaudit doctor"
	case lacks != "":
		return "run it outside of the container, or give the container " + lacks
	}
	return ""
}

// row says who asks, and whose rights a fork test's application has.
func (w *who) row() Row {
	r := Row{Name: "privilege", Group: Processes, State: Yes, Remedy: w.remedy()}
	r.Detail = "user " + w.name
	if lacks := w.lacking(); lacks != "" {
		r.State = No
		r.Detail += ", without " + lacks
	}
	if !w.initUser {
		r.State = No
		r.Detail += ", in a user namespace of its own"
	}
	if w.sudoUID >= 0 {
		r.Detail += fmt.Sprintf("; called by %s, as whom a fork test runs the application", w.sudoUser)
	} else if w.uid == 0 {
		r.Detail += "; not by sudo: a fork test runs the application as root"
	}
	return r
}
