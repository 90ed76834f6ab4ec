package forktest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/internal/testkit"
)

// What a run leaves when cowaudit itself is killed: nothing. The test starts itself again as that cowaudit.
func TestKilled(t *testing.T) {
	if spec := os.Getenv("COWAUDIT_TEST_VICTIM"); spec != "" {
		victim(spec)
		return
	}
	testkit.Require(t, "ruby")
	const wait = "X = 1"
	tests := []struct {
		name string
		c    Config
		at   string // phase in which it is killed
	}{
		{"between orders", Config{Subject: "ruby", Preload: wait}, "running the event null"},
		{"while it loads", Config{Subject: "ruby", Preload: "sleep"}, "evaluating the preload expression"},
		{"in an event", Config{Subject: "ruby", Preload: "def GC.start(**) = sleep(0.5)", Settle: Settle{Fixed: true}}, "running the event first_major_gc"},
		{"behind a wrapper, between orders", Config{Subject: script(t, "#!/bin/sh\nruby \"$@\"\n"), Preload: wait}, "running the event null"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mark := "COWAUDIT_KILL_TEST=" + strconv.FormatInt(time.Now().UnixNano(), 36)
			spec, err := json.Marshal(victimSpec{tt.c.Subject, tt.c.Preload, tt.at, mark, tt.c.Settle})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
			cmd.Env = append(os.Environ(), "COWAUDIT_TEST_VICTIM="+string(spec))
			p := testkit.StartCmd(t, cmd)
			p.WaitLine("READY")
			pids := marked(t, mark)
			if len(pids) < 1 || tt.at != "evaluating the preload expression" && len(pids) < 3 {
				t.Fatalf("%d processes of the subject", len(pids))
			}
			var fds []unix.PollFd
			for _, pid := range pids {
				fd, err := unix.PidfdOpen(pid, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
			p.Signal(syscall.SIGKILL)
			for end := time.Now().Add(30 * time.Second); len(fds) > 0; {
				left := time.Until(end)
				if left <= 0 {
					t.Fatalf("%d of the subject's processes are still there: %v", len(fds), marked(t, mark))
				}
				if _, err := unix.Poll(fds[:1], int(left.Milliseconds())); err == nil && fds[0].Revents != 0 {
					fds = fds[1:]
				}
			}
		})
	}
}

// marked lists the processes that carry a mark.
func marked(t *testing.T, mark string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if env, err := os.ReadFile(d + "/environ"); err == nil && strings.Contains("\x00"+string(env), "\x00"+mark+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// victimSpec is what the test that is killed is to do.
type victimSpec struct {
	Subject, Preload, At, Mark string
	Settle                     Settle
}

// victim runs a test, says when it has come to a phase, and stays there until it is killed.
func victim(spec string) {
	var v victimSpec
	if err := json.Unmarshal([]byte(spec), &v); err != nil {
		panic(err)
	}
	c := Config{Subject: v.Subject, Preload: v.Preload, Settle: v.Settle, Env: []string{v.Mark}, Runs: 1, Workers: 2, Observer: &fakeObserver{}}
	c.Progress = func(p Progress) {
		if p.Phase == v.At {
			w := bufio.NewWriter(os.Stdout)
			fmt.Fprintln(w, "READY")
			w.Flush()
			if p.Phase == "running the event null" {
				select {} // the subject waits for an order
			}
		}
	}
	p, err := newPlan(c)
	if err != nil {
		panic(err)
	}
	_, err = p.run(context.Background(), fakeDiff(nil))
	panic(fmt.Sprint("not killed: ", err))
}
