package testkit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runEnv marks the processes of one test run: they inherit it, and so do theirs.
const runEnv = "COWAUDIT_TEST_RUN"

// Main runs the tests of a package, for its TestMain, and fails the run when descriptors or processes are left behind.
func Main(m *testing.M) {
	mark := fmt.Sprintf("%d.%d", os.Getpid(), time.Now().UnixNano())
	if err := os.Setenv(runEnv, mark); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		os.Exit(1)
	}
	before := descriptors()
	code := m.Run()
	if left := leftDescriptors(before, patience); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "testkit: descriptors left open: %s\n", strings.Join(left, ", "))
		code = max(code, 1)
	}
	if left := leftProcesses(mark, patience); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "testkit: processes left behind: %s\n", strings.Join(left, ", "))
		code = max(code, 1)
	}
	os.Exit(code)
}

// patience is how long what is on its way to be closed or to end is waited for.
const patience = 3 * time.Second

// descriptors lists the open descriptors and what they lead to. The runtime's own are left out: its poller, and the handles
// of processes, which are closed when the collector finds that nothing uses them.
func descriptors() map[string]string {
	out := map[string]string{}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return out
	}
	for _, e := range list {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]" || to == "anon_inode:[pidfd]" || strings.HasPrefix(to, "pidfs:") {
			continue // err: the descriptor that this list was read with
		}
		out[e.Name()] = to
	}
	return out
}

func leftDescriptors(before map[string]string, limit time.Duration) []string {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		var left []string
		for fd, to := range descriptors() {
			if _, ok := before[fd]; !ok {
				left = append(left, fd+" "+to)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
		runtime.GC() // for a File that nobody refers to any more: not a leak that grows
	}
}

// leftProcesses finds the processes that carry the mark of this run, or are children of this process, kills them and says
// what they are.
func leftProcesses(mark string, limit time.Duration) (left []string) {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		pids := marked(mark)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().Before(end) {
			continue
		}
		for _, pid := range pids {
			p, err := os.FindProcess(pid) // a descriptor: what is killed is what was found
			if err != nil {
				continue
			}
			if ours(pid, mark) {
				cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				left = append(left, fmt.Sprintf("%d (%s)", pid, bytes.ReplaceAll(bytes.TrimRight(cmdline, "\x00"), []byte{0}, []byte{' '})))
				_ = p.Kill()
			}
			_ = p.Release()
		}
		return left
	}
}

func marked(mark string) (pids []int) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil && pid != os.Getpid() && ours(pid, mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func ours(pid int, mark string) bool {
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil {
		for _, kv := range bytes.Split(env, []byte{0}) {
			if string(kv) == runEnv+"="+mark {
				return true
			}
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(f) > 1 && string(f[1]) == strconv.Itoa(os.Getpid())
}
