package symbols

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"slices"
	"sync"

	"cowaudit/pagemap"
)

// ErrClosed: the resolver has been closed.
var ErrClosed = errors.New("symbols: closed")

// Options say where to look.
type Options struct {
	FS        pagemap.FS // the /proc of the processes; it must be one that shows this process too
	DebugDirs []string   // of separate debug files, in the process' root and in ours; nil: /usr/lib/debug
	Lines     bool       // look up source lines
}

// Problem is something that kept symbols of a file from being read.
type Problem struct {
	Path string // as maps shows it
	Err  error
}

// Resolver holds the files of all processes that were asked about. It, and what it gives, may be used by several goroutines
// at once.
type Resolver struct {
	options Options

	mu       sync.Mutex
	closed   bool
	modules  map[fileID]*module
	vdsos    map[[sha256.Size]byte]*module
	roots    map[rootID]*root
	maps     map[perfID]*perfMap
	paths    map[string]string
	open     []io.Closer // all that Close closes
	problems []Problem
	reported map[string]bool
}

// fileID tells files apart while they are open.
type fileID struct{ dev, ino uint64 }

// New makes a resolver. Nothing is read before it is asked for.
func New(o Options) *Resolver {
	if o.DebugDirs == nil {
		o.DebugDirs = []string{"/usr/lib/debug"}
	}
	return &Resolver{
		options: o, modules: map[fileID]*module{}, vdsos: map[[sha256.Size]byte]*module{}, roots: map[rootID]*root{}, maps: map[perfID]*perfMap{},
		paths: map[string]string{}, reported: map[string]bool{},
	}
}

// Close closes every descriptor. Spaces can still be asked: what was read before is still known.
func (r *Resolver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, c := range r.open {
		errs = append(errs, c.Close())
	}
	r.open = nil
	return errors.Join(errs...)
}

// Problems lists what kept symbols from being read, each thing once, by path. A file that has no symbols is none.
func (r *Resolver) Problems() []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.problems)
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Err.Error(), b.Err.Error()))
	})
	return out
}

// maxProblems bounds what a process can make us remember.
const maxProblems = 1000

// problem notes a problem. The lock must not be held.
func (r *Resolver) problem(path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problemLocked(path, err)
}

func (r *Resolver) problemLocked(path string, err error) {
	if key := path + "\x00" + err.Error(); !r.reported[key] && len(r.reported) < maxProblems {
		r.reported[key] = true
		r.problems = append(r.problems, Problem{path, err})
	}
}

// keep takes charge of an open file; false: the resolver is closed, and so is the file now.
func (r *Resolver) keep(f *os.File) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keepLocked(f)
}

func (r *Resolver) keepLocked(f *os.File) bool {
	if r.closed {
		_ = f.Close() // opened for reading
		return false
	}
	r.open = append(r.open, f)
	return true
}

// intern gives one string for equal paths: those of all processes are mostly the same.
func (r *Resolver) intern(s string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := r.paths[s]; ok {
		return i
	}
	r.paths[s] = s
	return s
}

// module gives the one module of an open file. The file is the module's, or closed.
func (r *Resolver) module(f *os.File, id fileID, path string, in []place) (*module, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.modules[id]; m != nil {
		for _, p := range in {
			if !slices.Contains(m.in, p) && len(m.in) < 16 {
				m.in = append(slices.Clip(m.in), p)
			}
		}
		return m, f.Close()
	}
	if !r.keepLocked(f) {
		return nil, ErrClosed
	}
	m := &module{r: r, path: path, in: in, file: f, data: f}
	r.modules[id] = m
	return m, nil
}

// places gives where a module's file lies.
func (m *module) places() []place {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	return m.in
}

// vdso gives the one module of an image.
func (r *Resolver) vdso(image []byte) *module {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256(image)
	m := r.vdsos[sum]
	if m == nil {
		m = &module{r: r, path: vdsoName, data: bytes.NewReader(image), vdso: true}
		r.vdsos[sum] = m
	}
	return m
}
