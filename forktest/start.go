package forktest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// tokenVariable marks every process of a run in its environment, so that one that left its session is found as well.
const tokenVariable = "COWAUDIT_RUN"

// process is the process that was started, whatever it has become since, with what is needed to end all that comes of it.
type process struct {
	os      *os.Process
	pid     pagemap.PID
	token   string
	reaper  int32         // whether this process was the reaper of its orphans before
	release chan struct{} // lets the thread go that the process is bound to
}

// startProcess starts a command in a session of its own, its standard input and output as given. It ends by SIGKILL when
// this process does (PR_SET_PDEATHSIG, 2.1.57; not inherited by what it starts in turn: that finds its control channel
// closed), and its orphans come to this process (PR_SET_CHILD_SUBREAPER, 3.4) until [process.end].
func startProcess(argv, env []string, in, out *os.File, as *account) (*process, error) {
	if err := ownProc("/proc/self"); err != nil {
		return nil, err
	}
	path, err := lookPath(argv[0], lookup(env, "PATH"))
	if err != nil {
		return nil, err
	}
	var random [16]byte
	rand.Read(random[:])
	p := &process{token: tokenVariable + "=" + hex.EncodeToString(random[:]), release: make(chan struct{})}
	if _, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&p.reaper)), 0); errno != 0 {
		return nil, fmt.Errorf("ask who is the reaper of orphans: %w", errno)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	attr := &os.ProcAttr{
		Env:   environ(env, as.environment(), []string{p.token}),
		Files: []*os.File{in, out, out},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if as != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid, Groups: as.groups}
	}
	started := make(chan error)
	go func() {
		// The signal comes when the thread ends that started the process, so that thread stays until the process is gone.
		runtime.LockOSThread()
		var err error
		p.os, err = os.StartProcess(path, argv, attr)
		started <- err
		<-p.release
	}()
	if err := <-started; err != nil {
		p.letGo()
		return nil, fmt.Errorf("start %s: %w", argv[0], cause(err))
	}
	p.pid = pagemap.PID(p.os.Pid)
	return p, nil
}

// ownProc makes sure that the PIDs of /proc are those of this process' pid namespace: what is killed at the end is found
// there. self is /proc/self, which leads to this process' PID as that /proc has it.
func ownProc(self string) error {
	to, err := os.Readlink(self)
	if err != nil {
		return fmt.Errorf("find this process in /proc: %w", cause(err))
	}
	if to != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("/proc is of another pid namespace: it calls process %d %s: run cowaudit in that namespace, or mount a /proc of its own", os.Getpid(), to)
	}
	return nil
}

// letGo undoes what startProcess did to this process.
func (p *process) letGo() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(p.reaper), 0, 0, 0) // it was accepted before
	close(p.release)
}

// cause leaves out what the error of os.StartProcess says of the operation.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// lookPath finds a command as a shell would in the given PATH.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", fmt.Errorf("no such command: %s: %w", name, err)
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		if file := filepath.Join(dir, name); executable(file) == nil {
			if !strings.Contains(file, "/") {
				file = "./" + file
			}
			return file, nil
		}
	}
	return "", fmt.Errorf("no such command: %s (looked for in %s)", name, path)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return cause(err)
	case info.IsDir():
		return errors.New("is a directory")
	case info.Mode()&0o111 == 0:
		return errors.New("is not executable")
	}
	return nil
}
