package taskstats

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// Accounting is the state of the kernel's delay accounting, and what cowaudit's own record of this boot says about it. Times
// are since boot, suspended time included (CLOCK_BOOTTIME), as the start times in /proc/PID/stat are.
type Accounting struct {
	On bool
	// OnSince is when a cowaudit switched it on; 0 where it is off, or somebody else switched it on, or at the start.
	OnSince time.Duration
	// OffSeen is the last moment at which cowaudit knows it to have been off; 0 where it never saw that.
	OffSeen time.Duration
}

// switches is where accounting is switched and where the record of that is kept.
type switches struct {
	sysctl string // kernel.task_delayacct
	dir    string // of the record, on a file system that a boot empties
	key    string // file that names this boot
}

// system is the place on a running system. /run is writable for root only and empty after a boot
// (Filesystem Hierarchy Standard 3.0, 3.15).
var system = switches{sysctl: "/proc/sys/kernel/task_delayacct", dir: "/run/cowaudit", key: "/proc/sys/kernel/random/boot_id"}

// DelayAccounting tells whether delay accounting is on (kernel.task_delayacct, sysctl since 5.14; everybody may read it). The
// error wraps pagemap.ErrNotSupported where the kernel has no such switch: built without CONFIG_TASK_DELAY_ACCT, or older
// than 5.14, where wpcopy_count is not there either.
func DelayAccounting() (Accounting, error) { return system.read() }

func (s switches) read() (Accounting, error) {
	on, err := s.on()
	if err != nil {
		return Accounting{}, err
	}
	r, err := s.record()
	if err != nil {
		return Accounting{}, err
	}
	a := Accounting{On: on, OffSeen: r.OffSeen}
	if on {
		a.OnSince = r.OnSince
	}
	return a, nil
}

func (s switches) on() (bool, error) {
	b, err := os.ReadFile(s.sysctl)
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read kernel.task_delayacct: %w: no such setting (CONFIG_TASK_DELAY_ACCT, Linux 5.14)", pagemap.ErrNotSupported)
	}
	if err != nil {
		return false, fmt.Errorf("read kernel.task_delayacct: %w", err)
	}
	switch v := strings.TrimSpace(string(b)); v {
	case "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("read kernel.task_delayacct: %w: %q", pagemap.ErrFormat, v)
	}
}

func (s switches) write(v string) error {
	f, err := os.OpenFile(s.sysctl, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(v)
		err = errors.Join(err, f.Close())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("set kernel.task_delayacct=%s: %w: needs root with CAP_SYS_ADMIN", v, err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("set kernel.task_delayacct=%s: %w: /proc/sys is read-only, as in a container: set it on the host", v, err)
	}
	return fmt.Errorf("set kernel.task_delayacct=%s: %w", v, err)
}

// SwitchOn switches delay accounting on for a run: tasks forked from then on are counted. restore gives the run's claim
// back and must be called once the run is over; further calls do nothing. What was on already stays on after it.
//
// Runs side by side share the setting: each holds a lock on a file in /run/cowaudit, and the one that finds itself the last
// switches off what a cowaudit had switched on. The kernel drops the lock of a run that is killed; its setting then stays on
// until the next run ends, or the next boot. That harms nothing: it costs some nanoseconds at each fault and switch of
// tasks. Nothing here handles signals: a command turns them into the end of its run.
//
// It needs root (CAP_SYS_ADMIN). Somebody who sets the sysctl by hand while a run holds it finds it switched off afterwards.
func SwitchOn() (restore func() error, err error) { return system.switchOn() }

func (s switches) switchOn() (restore func() error, err error) {
	if _, err := s.on(); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	users, err := s.hold()
	if err != nil {
		return nil, err
	}
	if err := s.turnOn(); err != nil {
		return nil, errors.Join(err, users.Close())
	}
	return sync.OnceValue(func() error { return s.letGo(users) }), nil
}

// turnOn is called with the lock held.
func (s switches) turnOn() error {
	on, err := s.on()
	if err != nil || on {
		return err // by another cowaudit, whose record says so, or not by us
	}
	r, err := s.record()
	if err != nil {
		return err
	}
	// The record comes first: who is killed between the two has switched nothing on.
	now := sinceBoot()
	r.OffSeen, r.OnSince = now, now
	if err := s.save(r); err != nil {
		return err
	}
	if err := s.write("1"); err != nil {
		r.OnSince = 0
		return errors.Join(err, s.save(r))
	}
	r.OnSince = sinceBoot()
	if err := s.save(r); err != nil {
		return errors.Join(err, s.write("0"))
	}
	// Start times are cut to ticks. What the caller starts from here on has one that is later than the switch.
	time.Sleep(tick - r.OnSince%tick)
	return nil
}

// letGo gives up the claim, and switches off what nobody claims any more.
func (s switches) letGo(users *os.File) (err error) {
	unlock, err := s.lock()
	if err != nil {
		return errors.Join(err, users.Close())
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := users.Close(); err != nil {
		return fmt.Errorf("let go of delay accounting: %w", err)
	}
	held, err := s.held()
	if err != nil || held {
		return err
	}
	r, err := s.record()
	if err != nil || r.OnSince == 0 {
		return err
	}
	if err := s.write("0"); err != nil {
		return err
	}
	r.OnSince, r.OffSeen = 0, sinceBoot()
	return s.save(r)
}

// lock excludes other cowaudits while the setting and its record are changed.
func (s switches) lock() (unlock func() error, err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("switch delay accounting, which is for root: make a place for its record: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "task_delayacct.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("switch delay accounting, which is for root: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

func (s switches) users() string { return filepath.Join(s.dir, "task_delayacct.users") }

// hold claims the setting until the file is closed.
func (s switches) hold() (*os.File, error) {
	f, err := os.OpenFile(s.users(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim delay accounting: %w", err)
	}
	if err := flock(f, unix.LOCK_SH); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// left reports that a cowaudit switched accounting on and was killed: nobody claims it any more.
func (s switches) left() (left bool, err error) {
	a, err := s.read()
	if err != nil || a.OnSince == 0 {
		return false, err
	}
	unlock, err := s.lock()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	held, err := s.held()
	return !held, err
}

// held reports whether anybody claims the setting. It asks with a lock of its own, so it is called with the other lock
// held: two that ask at once would take each other for users.
func (s switches) held() (bool, error) {
	f, err := os.Open(s.users())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask who claims delay accounting: %w", err)
	}
	defer f.Close()
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				return fmt.Errorf("lock %s: %w", filepath.Base(f.Name()), err)
			}
			return nil
		}
	}
}

// sinceBoot reads CLOCK_BOOTTIME, the clock of the start times in /proc/PID/stat (fs/proc/array.c, do_task_stat).
func sinceBoot() time.Duration {
	var t unix.Timespec
	// It cannot fail: the clock is in every kernel since 2.6.39, and the address is good.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}
