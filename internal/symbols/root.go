package symbols

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"cowaudit/pagemap"

	"golang.org/x/sys/unix"
)

// root is a root folder of processes, held by a descriptor. While it is held, its file system cannot be unmounted otherwise
// than lazily.
type root struct {
	dir  *os.File
	link string // its path as seen from ours; "/" for ours and for those of other mount namespaces
}

// rootID tells roots apart while they are open.
type rootID struct {
	fileID
	mounts string // the mount namespace
}

// root gives the root folder of a process.
func (r *Resolver) root(pid pagemap.PID) (*root, error) {
	p := strconv.Itoa(int(pid))
	return r.rootAt(r.options.FS.Path(p, "root"), r.options.FS.Path(p, "ns", "mnt"))
}

// host gives our own root.
func (r *Resolver) host() (*root, error) {
	return r.rootAt("/", r.options.FS.Path("self", "ns", "mnt"))
}

func (r *Resolver) rootAt(path, mounts string) (*root, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("stat %s: %w", path, err), dir.Close())
	}
	id := rootID{fileID: fileID{st.Dev, st.Ino}}
	// Without the name of the namespace the folder alone tells roots apart: two containers may have one root file system
	// with different mounts below it, and what is found there is checked by its build-id.
	id.mounts, _ = os.Readlink(mounts)
	link := "/"
	if l, err := os.Readlink(path); err == nil && strings.HasPrefix(l, "/") {
		link = l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.roots[id]; have != nil {
		return have, dir.Close()
	}
	if !r.keepLocked(dir) {
		return nil, ErrClosed
	}
	t := &root{dir: dir, link: link}
	r.roots[id] = t
	return t, nil
}

// inside gives the names that a path of maps may have in this root. The kernel writes it as seen from the reader's root, if
// it can be reached from there, else from that of the mount namespace (fs/d_path.c).
func (t *root) inside(path string) []string {
	out := []string{path}
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(t.link, "/")+"/"); ok && t.link != "/" {
		out = append(out, "/"+rest)
	}
	return out
}

// openIn opens a regular file below the root, and never anything else: to open a device or a pipe can do something, or not
// end. Links are followed within the root (openat2, 5.6; before, a link to an absolute path leads out of it).
func (r *Resolver) openIn(t *root, path string, follow bool) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := pathIn(t, path, follow)
	if err != nil {
		return nil, st, err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, st, fmt.Errorf("stat %s: %w", path, err)
	}
	f, err := openRegular(r.options.FS.Path("self", "fd", strconv.Itoa(fd)), &st)
	return f, st, err
}

// pathIn opens a path below the root as nothing but a path.
func pathIn(t *root, path string, follow bool) (int, error) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	at := int(t.dir.Fd())
	fd, err := unix.Openat2(at, path, &unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // EPERM: by seccomp filters that do not know it
		fd, err = unix.Openat(at, strings.TrimLeft(path, "/"), flags, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// openRegular opens a file that st says is a regular one, and makes sure that it is the one of st.
func openRegular(path string, st *unix.Stat_t) (*os.File, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("open %s: not a regular file", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil || now.Dev != st.Dev || now.Ino != st.Ino {
		return nil, errors.Join(fmt.Errorf("open %s: it changed meanwhile", path), err, f.Close())
	}
	return f, nil
}

// is reports whether a path below the root is the file of an id.
func (t *root) is(path string, id fileID) bool {
	fd, err := pathIn(t, path, true)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && fileID{st.Dev, st.Ino} == id
}
