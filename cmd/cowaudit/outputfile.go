package main

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// outputFile is a file that a result is written to.
type outputFile struct {
	name   string // as the user gave it
	path   string // of the file itself: name, with symbolic links followed
	direct bool   // a device or a pipe: written to as it is
	force  bool   // an existing file may be replaced
	mode   fs.FileMode
	temp   *os.File // not yet renamed
}

// openOutputFile checks that the file can be written, and creates its temporary file. All its errors are wrong usage: they
// come before anything was measured, and another -o is the remedy.
func openOutputFile(name string, force bool) (*outputFile, error) {
	f := &outputFile{name: name, path: name, force: force, mode: 0o666}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(name); err == nil {
			return nil, usageErrorf("-o %s: a symbolic link to nothing: give the name of the file itself", name)
		}
	case err != nil:
		return nil, f.usage(err)
	case info.IsDir():
		return nil, usageErrorf("-o %s: is a folder: give the name of a file", name)
	case !info.Mode().IsRegular():
		f.direct = true
		f.temp, err = os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, f.usage(err)
		}
		return f, nil
	case !force:
		return nil, usageErrorf("-o %s: the file exists: give --force to overwrite it", name)
	default:
		if f.path, err = filepath.EvalSymlinks(name); err != nil {
			return nil, f.usage(err)
		}
		f.mode = info.Mode().Perm()
	}
	if err := f.create(); err != nil {
		return nil, f.usage(err)
	}
	return f, nil
}

func (f *outputFile) usage(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return usageErrorf("-o %s: no such folder: %s: create it first", f.name, filepath.Dir(f.name))
	}
	return usageErrorf("-o %s: cannot be written: %w: choose another file", f.name, err)
}

// create makes the temporary file, hidden and in the folder of the file itself, so that it can be renamed.
func (f *outputFile) create() (err error) {
	temp := filepath.Join(filepath.Dir(f.path), ".cowaudit-"+rand.Text()+".tmp")
	f.temp, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	return err
}

// write puts a whole result in the place of the file. When it cannot, what was there before is still there.
func (f *outputFile) write(render func(io.Writer) error) error {
	if f.temp == nil {
		if f.direct {
			return fmt.Errorf("write %s: only one result can be written to what is no file", f.name)
		}
		if err := f.create(); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	temp := f.temp.Name()
	if err := f.fill(render); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", f.name, cause(err, temp)), f.discard())
	}
	return nil
}

// fill writes the temporary file through to the disk and renames it.
func (f *outputFile) fill(render func(io.Writer) error) error {
	w := bufio.NewWriterSize(f.temp, 1<<16)
	if err := render(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if f.direct {
		temp := f.temp
		f.temp = nil
		return temp.Close()
	}
	if err := f.temp.Sync(); err != nil {
		return err
	}
	if err := f.temp.Close(); err != nil {
		return err
	}
	if f.force {
		if err := os.Rename(f.temp.Name(), f.path); err != nil {
			return err
		}
	} else {
		// The name was free when the file was opened; this keeps what somebody else put there since.
		if err := renameNew(f.temp.Name(), f.path); err != nil {
			return err
		}
		f.force = true // what stands there now is our own
	}
	f.temp = nil
	return syncFolder(filepath.Dir(f.path))
}

// renameNew renames to a name that must be free. File systems that cannot ask for that are asked before instead.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if _, err := os.Lstat(to); err == nil {
			return unix.EEXIST
		}
		return os.Rename(from, to)
	}
	return err
}

// syncFolder makes a rename last. File systems that cannot are left as they are.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // a folder that may be written and not read
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// discard closes and removes the temporary file, if there is one.
func (f *outputFile) discard() error {
	if f.temp == nil {
		return nil
	}
	temp := f.temp
	f.temp = nil
	err := temp.Close()
	if f.direct {
		return nil // whatever was to be said about it was said by the writes
	}
	if e := os.Remove(temp.Name()); e != nil {
		return fmt.Errorf("remove the unfinished %s: %w", temp.Name(), cause(e, temp.Name()))
	}
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("close %s: %w", temp.Name(), cause(err, temp.Name()))
	}
	return nil
}

// cause leaves out the temporary name, which tells nobody anything.
func cause(err error, temp string) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path) && path.Path == temp:
		return path.Err
	case errors.As(err, &link) && link.Old == temp:
		return link.Err
	}
	return err
}
