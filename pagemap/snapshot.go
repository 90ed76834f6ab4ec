package pagemap

import (
	"errors"
	"io"
)

// Snapshot is a capture kept in memory, and what its file holds; it is a [Source]. It has frame numbers and flags, never
// contents.
type Snapshot struct {
	Fam     Family
	Windows []Window // ascending by Start
}

// Record walks a source and keeps all of it.
func Record(src Source) (*Snapshot, error) { return nil, errors.New("under construction") }

// Family implements Source.
func (s *Snapshot) Family() *Family { return &s.Fam }

// Walk implements Source.
func (s *Snapshot) Walk(newVisitor func() Visitor) error { return nil }

// WriteSnapshot writes the file format of docs/format.md.
func WriteSnapshot(w io.Writer, s *Snapshot) error { return errors.New("under construction") }

// ReadSnapshot reads it. The file is foreign input: every length is checked; errors wrap ErrFormat.
func ReadSnapshot(r io.Reader) (*Snapshot, error) { return nil, errors.New("under construction") }
