package forktest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var wordTests = []struct {
	name, in string
	want     []string
}{
	{"one", "ruby", []string{"ruby"}},
	{"several", " chroot  /srv/r33\truby3.3\n", []string{"chroot", "/srv/r33", "ruby3.3"}},
	{"single quotes", `a 'b c' 'd"e\f'`, []string{"a", "b c", `d"e\f`}},
	{"double quotes", `a "b c" "d'e"`, []string{"a", "b c", "d'e"}},
	{"backslashes in double quotes", `"a\"b\\c\$d\e"`, []string{`a"b\c$d\e`}},
	{"backslashes outside", `a\ b c\\d \'`, []string{"a b", `c\d`, "'"}},
	{"quotes inside a word", `--x="a b"'c d'e`, []string{"--x=a bc de"}},
	{"empty words", `'' "" a`, []string{"", "", "a"}},
	{"joined lines", "a\\\nb \"c\\\nd\"", []string{"ab", "cd"}},
	{"nothing is expanded", `'$HOME' \$HOME '*' '~'`, []string{"$HOME", "$HOME", "*", "~"}},
	{"nothing", " \t", nil},
}

func TestSplitWords(t *testing.T) {
	for _, tt := range wordTests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := SplitWords(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A shell must agree, on all that needs no expansion.
func TestSplitWordsAsShell(t *testing.T) {
	for _, tt := range wordTests {
		t.Run(tt.name, func(t *testing.T) {
			// The new line ends a command, so blanks at the ends are left out.
			out, err := exec.Command("sh", "-c", `printf '%s\0' x `+strings.TrimSpace(tt.in)).Output()
			if err != nil {
				t.Fatal(err)
			}
			words, err := SplitWords(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			shell := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			if diff := cmp.Diff(shell[1:], append([]string{}, words...)); diff != "" {
				t.Errorf("(-shell +ours):\n%s", diff)
			}
		})
	}
}

func TestSplitWordsRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`a 'b`:   "a quote (') is not closed",
		`a "b`:   `a quote (") is not closed`,
		`a "b\"`: `a quote (") is not closed`,
		`a b\`:   "nothing after the last backslash",
	} {
		if got, err := SplitWords(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
}

func TestJoinWords(t *testing.T) {
	for _, words := range [][]string{
		{"ruby"}, {"/opt/ruby/bin/ruby", "--yjit", "-W:no-x"}, {"a b", "c'd", "", "$x", "*", "é", "a\nb", "#"},
	} {
		got, err := SplitWords(joinWords(words))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(words, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", joinWords(words), diff)
		}
	}
	if got := joinWords([]string{"chroot", "/srv/r", "ruby3.3"}); got != "chroot /srv/r ruby3.3" {
		t.Errorf("needless quotes: %s", got)
	}
}
