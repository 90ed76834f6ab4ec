package pagemap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// FS is the /proc file system to read, by the path where it is mounted. The zero value reads /proc. PIDs are those of the
// pid namespace of that mount.
type FS string

// Path joins a name below the mount.
func (f FS) Path(elem ...string) string {
	root := string(f)
	if root == "" {
		root = "/proc"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// file is the path of a file of one process.
func (f FS) file(pid PID, name string) string {
	root := string(f)
	if root == "" {
		root = "/proc"
	}
	return root + "/" + strconv.Itoa(int(pid)) + "/" + name
}

// read appends the whole of a file of one process to buf. The files of /proc have no size, so it reads to the end.
func (f FS) read(pid PID, name string, buf []byte) ([]byte, error) {
	h, err := os.Open(f.file(pid, name))
	if err != nil {
		return buf, readError(pid, name, err)
	}
	defer h.Close()
	buf, err = readTo(h, buf, -1)
	if err != nil {
		return buf, readError(pid, name, err)
	}
	return buf, nil
}

// readTo appends what r has to buf, at most limit bytes of it when limit is not negative. Some bytes more than the limit
// may have been taken from r.
func readTo(r io.Reader, buf []byte, limit int) ([]byte, error) {
	for start := len(buf); limit < 0 || len(buf)-start < limit; {
		if cap(buf)-len(buf) < 4096 {
			grown := make([]byte, len(buf), max(2*cap(buf), 16384))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if limit >= 0 && len(buf)-start > limit {
			buf = buf[:start+limit]
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// readError says which file of which process could not be read, and makes the two errors of a process that is no more
// (ENOENT before the open, ESRCH after it) an [ErrGone]. A refusal stays recognisable as fs.ErrPermission.
func readError(pid PID, name string, err error) error {
	if gone(err) {
		return fmt.Errorf("read %s of %d: %w: %w", name, pid, ErrGone, errno(err))
	}
	return fmt.Errorf("read %s of %d: %w", name, pid, errno(err))
}

func gone(err error) bool {
	return errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT)
}

// errno drops the path from an error of the os package: the message names process and file already.
func errno(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}

// noMM turns an ErrGone into an ErrNoMM where the process is still there: zombies and kernel threads answer ESRCH to
// smaps_rollup and pagemap and ENOENT to exe, as a process does that is gone.
func (f FS) noMM(pid PID, name string, err error) error {
	if !errors.Is(err, ErrGone) {
		return err
	}
	if _, serr := f.Stat(pid); serr != nil {
		return err
	}
	return fmt.Errorf("read %s of %d: %w", name, pid, ErrNoMM)
}
