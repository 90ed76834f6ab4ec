package oracle

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// Real servers, on unix sockets in folders of their own, for the length of a test.

type server struct {
	name    string
	workers int // at least
	start   func(t *testing.T, dir string) *exec.Cmd
	ready   string // a file in its folder
}

var servers = []server{
	{"redis", 0, redis, "socket"},
	{"postgres", 3, postgres, "run/.s.PGSQL.5432"},
	{"php-fpm", 2, phpFPM, "socket"},
	{"gunicorn", 2, gunicorn, "socket"},
	{"ruby", 2, ruby, "ready"},
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func redis(t *testing.T, dir string) *exec.Cmd {
	return exec.Command(testkit.Program(t, "redis"), "--port", "0", "--unixsocket", filepath.Join(dir, "socket"), "--save", "", "--dir", dir)
}

func postgres(t *testing.T, dir string) *exec.Cmd {
	testkit.Require(t, "root")
	bin := filepath.Dir(testkit.Program(t, "postgres"))
	u, err := user.Lookup("postgres")
	if err != nil {
		testkit.Missing(t, err.Error())
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, run} {
		if err := os.Chown(d, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	db := filepath.Join(dir, "db")
	init := exec.Command(filepath.Join(bin, "initdb"), "-D", db, "-A", "trust", "-U", "postgres", "--no-sync")
	init.SysProcAttr, init.Dir = as, dir
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", db, "-c", "listen_addresses=", "-c", "unix_socket_directories="+run,
		"-c", "shared_buffers=64MB", "-c", "huge_pages=off", "-c", "fsync=off")
	cmd.SysProcAttr = as
	return cmd
}

func phpFPM(t *testing.T, dir string) *exec.Cmd {
	bin := testkit.Program(t, "php-fpm")
	conf := write(t, dir, "fpm.conf", "[global]\nerror_log="+dir+"/log\ndaemonize=no\n[w]\nlisten="+dir+"/socket\nuser=root\ngroup=root\npm=static\npm.max_children=2\n")
	return exec.Command(bin, "-n", "-R", "-F", "-y", conf)
}

func gunicorn(t *testing.T, dir string) *exec.Cmd {
	bin := testkit.Program(t, "gunicorn")
	write(t, dir, "app.py", "ROWS = [{'id': i, 'name': f'row {i}'} for i in range(50_000)]\ndef app(env, start):\n    start('200 OK', [])\n    return [b'ok']\n")
	return exec.Command(bin, "--bind", "unix:"+filepath.Join(dir, "socket"), "--workers", "2", "--preload", "--worker-tmp-dir", dir, "app:app")
}

func ruby(t *testing.T, dir string) *exec.Cmd {
	bin := testkit.Program(t, "ruby")
	script := write(t, dir, "server.rb", "KEEP = Array.new(200_000) { |i| [i, \"value #{i}\"] }\nr, = IO.pipe\n"+
		"2.times { fork { GC.start; File.write(File.join(ARGV[0], \"worker#{$$}\"), ''); r.read } }\n"+
		"sleep 0.01 until Dir[File.join(ARGV[0], 'worker*')].size == 2\nFile.write(File.join(ARGV[0], 'ready'), '')\nr.read\n")
	return exec.Command(bin, script, dir)
}

// run starts a server and gives its processes, the master first, once it is ready and its processes are at rest.
func (s server) run(t *testing.T) []pagemap.PID {
	t.Helper()
	dir, err := os.MkdirTemp("", "oracle-"+s.name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := s.start(t, dir)
	cmd.Dir = dir
	// A file, not a pipe: what a server leaves behind would keep a pipe open.
	log, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	master := pagemap.PID(cmd.Process.Pid)
	t.Cleanup(func() { end(t, cmd, master) })
	pids := func() []pagemap.PID {
		tree, err := proc.Tree()
		if err != nil {
			t.Fatal(err)
		}
		return append([]pagemap.PID{master}, tree.Descendants(master)...)
	}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, s.ready)); err == nil && len(pids()) > s.workers {
			break
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("%s does not come up: %s", s.name, said)
		}
	}
	settle(pids())
	return pids()
}

// end asks a server to end, and ends what is left of it and its descendants, by PID.
func end(t *testing.T, cmd *exec.Cmd, master pagemap.PID) {
	t.Helper()
	tree, err := proc.Tree()
	if err != nil {
		t.Error(err)
		return
	}
	left := tree.Descendants(master)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // by signal, which is asked for
	timer.Stop()
	for _, pid := range left {
		st, _ := tree.Get(pid)
		if proc.SameProcess(st.Identity()) {
			_ = syscall.Kill(int(pid), syscall.SIGKILL)
		}
	}
}
