package forktest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var compareMessages = cmp.AllowUnexported(message{}, arg{})

func TestParseMessage(t *testing.T) {
	tests := []struct {
		name, line string
		want       message
	}{
		{"word", "ready", message{word: "ready"}},
		{"arguments in order", "worker number=1 pid=77 orders=9", message{"worker", []arg{{"number", "1"}, {"pid", "77"}, {"orders", "9"}}}},
		{"empty value", "hello orders= events=null", message{"hello", []arg{{"orders", ""}, {"events", "null"}}}},
		{"encoded", "error message=a%20b%0Ac%25%7F", message{"error", []arg{{"message", "a b\nc%\x7f"}}}},
		{"small hex digits", "x a=%0a%2f", message{"x", []arg{{"a", "\n/"}}}},
		{"equals sign in a value", "x a=b=c", message{"x", []arg{{"a", "b=c"}}}},
		{"bytes above 127", "x a=\xc3\xa9\xff", message{"x", []arg{{"a", "é\xff"}}}},
		{"NUL", "x a=%00", message{"x", []arg{{"a", "\x00"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseMessage(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, compareMessages); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseMessageRefuses(t *testing.T) {
	for _, line := range []string{
		"", " ", " ready", "Ready", "1st", "_x", "ready ", "ready  a=1", "ready a", "ready =1", "ready A=1",
		"x a=1 a=2", "x a=%", "x a=%2", "x a=%zz", "x a=%+1", "x a=b\tc", "x a=b\rc", "x a=\x7f", "ready\r", "hello\x00", "héllo",
	} {
		if m, err := parseMessage(line); !errors.Is(err, errProtocol) {
			t.Errorf("%q: got %+v, %v", line, m, err)
		}
	}
}

func TestMessageRoundTrip(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := message{"load", []arg{{"app", "/srv/my app/50%.rb"}, {"source", string(all)}, {"empty", ""}}}
	line := want.String()
	if strings.ContainsAny(line, "\n\r\t\x00\x7f") || strings.Count(line, " ") != 3 {
		t.Fatalf("not one line of words: %q", line)
	}
	got, err := parseMessage(line)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compareMessages); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMessageNumber(t *testing.T) {
	m := message{"done", []arg{{"a", "7"}, {"b", "-1"}, {"c", "x"}, {"d", ""}, {"e", "99999999999999999999"}}}
	if n, err := m.number("a", 1, 7); n != 7 || err != nil {
		t.Errorf("a: %d, %v", n, err)
	}
	for _, key := range []string{"b", "c", "d", "e", "none"} {
		if n, err := m.number(key, 0, 1<<62); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %d, %v", key, n, err)
		}
	}
	if _, err := m.number("a", 8, 9); !errors.Is(err, errProtocol) {
		t.Errorf("below the range: %v", err)
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, s := range []string{"hello protocol=1 events=null,gc", "error message=a%20b", "x a=%", "x  y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parseMessage(line)
		if err != nil {
			return
		}
		again, err := parseMessage(m.String())
		if err != nil {
			t.Fatalf("%q gives %q, which is refused: %v", line, m.String(), err)
		}
		if diff := cmp.Diff(m, again, compareMessages); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
