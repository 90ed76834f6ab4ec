package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// programs looks for what a fork test can run.
func (p *prober) programs() []Row {
	return []Row{
		p.program("ruby", "fork tests of Ruby", "apt-get install ruby, or forktest --ruby COMMAND"),
		p.program("python3", "fork tests of Python", "apt-get install python3"),
	}
}

// program finds a program in PATH and asks it for its version, as the user who called sudo.
func (p *prober) program(name, what, remedy string) Row {
	r := Row{Name: name, Group: Programs}
	path, err := exec.LookPath(name)
	if err != nil {
		r.State, r.Detail, r.Remedy = No, "not in PATH: no "+what, remedy
		if p.who.sudoUID >= 0 {
			r.Detail = "not in the PATH that sudo gives: no " + what
		}
		return r
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	if p.who.sudoUID >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.who.sudoUID), Gid: uint32(p.who.sudoGID)}}
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = errors.New("no answer for 10 s")
	}
	if err != nil {
		r = p.cannotTell(r, fmt.Errorf("%s --version: %w", path, err))
		r.Remedy = "see why it does not run: " + path + " --version"
		return r
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	r.State, r.Detail = Yes, fmt.Sprintf("%s: %s", path, line)
	return r
}
