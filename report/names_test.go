package report

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every name that a result can have is in docs/format.md.
func TestNamesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(doc), "\n## JSON results\n")
	if !ok {
		t.Fatal("docs/format.md has no section \"JSON results\"")
	}
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(section, func(r rune) bool {
		return !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9')
	}) {
		words[w] = true
	}
	names := map[string]bool{}
	for _, kind := range kinds() {
		if !strings.Contains(section, "\n### kind `"+kind+"`\n") {
			t.Errorf("no section for kind %s", kind)
		}
		jsonNames(reflect.TypeOf(newResult(kind)), names, map[reflect.Type]bool{})
	}
	if len(names) < 100 {
		t.Errorf("only %d names found", len(names))
	}
	for n := range names {
		if !words[n] {
			t.Errorf("%s is not in docs/format.md", n)
		}
	}
}

func jsonNames(typ reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		jsonNames(typ.Elem(), names, seen)
	case reflect.Struct:
		if seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if n, _, _ := strings.Cut(f.Tag.Get("json"), ","); n != "" {
				names[n] = true
			} else if !f.Anonymous {
				names["a field without a name: "+f.Name] = true
			}
			jsonNames(f.Type, names, seen)
		}
	}
}
