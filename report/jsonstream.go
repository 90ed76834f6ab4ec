package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
)

// stream writes what encoding/json would write of a result, indented by two blanks, but list element by list element: a
// family with hundreds of thousands of mappings never stands in memory as text. It keeps the first error.
type stream struct {
	w   *bufio.Writer
	buf bytes.Buffer
	err error
}

func newStream(w io.Writer) *stream { return &stream{w: bufio.NewWriterSize(w, 1<<16)} }

// flush ends the text with a newline.
func (s *stream) flush() error {
	s.text("\n")
	if s.err == nil {
		s.err = s.w.Flush()
	}
	return s.err
}

func (s *stream) text(t string) {
	if s.err == nil {
		_, s.err = s.w.WriteString(t)
	}
}

const jsonIndent = "  "

// value writes a value whose lines after the first begin with prefix.
func (s *stream) value(v reflect.Value, prefix string) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			s.text("null")
			return
		}
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct && streamable(v.Type()):
		s.object(v, prefix)
	case v.Kind() == reflect.Slice && v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct:
		s.list(v, prefix)
	default:
		s.whole(v, prefix)
	}
}

// streamable reports a struct that holds a list of structs, so that it pays to write it field by field, and no embedded
// field, of which encoding/json lifts the fields.
func streamable(t reflect.Type) bool {
	lists := false
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous || !f.IsExported() || f.Tag.Get("json") == "" {
			return false
		}
		lists = lists || f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct
	}
	return lists
}

func (s *stream) object(v reflect.Value, prefix string) {
	inner, first := prefix+jsonIndent, true
	s.text("{")
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || omitted(f) && emptyJSON(v.Field(i)) {
			continue
		}
		if !first {
			s.text(",")
		}
		first = false
		s.text("\n" + inner + `"` + name + `": `)
		s.value(v.Field(i), inner)
	}
	if !first {
		s.text("\n" + prefix)
	}
	s.text("}")
}

// emptyJSON is what omitempty leaves out.
func emptyJSON(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func (s *stream) list(v reflect.Value, prefix string) {
	inner := prefix + jsonIndent
	s.text("[")
	for i := range v.Len() {
		if i > 0 {
			s.text(",")
		}
		s.text("\n" + inner)
		s.value(v.Index(i), inner)
	}
	s.text("\n" + prefix + "]")
}

// whole writes a value by encoding/json.
func (s *stream) whole(v reflect.Value, prefix string) {
	if s.err != nil {
		return
	}
	s.buf.Reset()
	e := json.NewEncoder(&s.buf)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, jsonIndent)
	if s.err = e.Encode(v.Interface()); s.err != nil {
		return
	}
	_, s.err = s.w.Write(escapeControls(bytes.TrimRight(s.buf.Bytes(), "\n")))
}
