package forktest

import (
	"errors"
	"os/user"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChooseAccount(t *testing.T) {
	allow := cmp.AllowUnexported(account{})
	u, err := user.LookupId("65534")
	if err != nil {
		t.Fatal(err)
	}
	nobody := &account{name: u.Username, home: u.HomeDir, uid: 65534, gid: 65534, groups: []uint32{65534}}
	tests := []struct {
		name, user string
		euid       int
		env        map[string]string
		want       *account
	}{
		{"not root", "", 1000, nil, nil},
		{"root", "", 0, nil, nil},
		{"sudo", "", 0, map[string]string{"SUDO_UID": "65534", "SUDO_GID": "65534"}, nobody},
		{"sudo by root", "", 0, map[string]string{"SUDO_UID": "0", "SUDO_GID": "0"}, nil},
		{"the variables alone make nobody root", "", 1000, map[string]string{"SUDO_UID": "65534", "SUDO_GID": "65534"}, nil},
		{"sudo by a user without an entry", "", 0, map[string]string{"SUDO_UID": "4000000000", "SUDO_GID": "4000000001"},
			&account{uid: 4000000000, gid: 4000000001, groups: []uint32{4000000001}}},
		{"named", u.Username, 0, nil, nobody},
		{"named by number", "65534", 0, nil, nobody},
		{"the name goes before sudo", "root", 0, map[string]string{"SUDO_UID": "65534", "SUDO_GID": "65534"}, nil},
		{"oneself", u.Username, 65534, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := chooseAccount(tt.user, tt.euid, func(k string) string { return tt.env[k] })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, allow); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChooseAccountRefuses(t *testing.T) {
	none := func(string) string { return "" }
	var c *ConfigError
	if _, err := chooseAccount("nobody", 1000, none); !errors.As(err, &c) || err.Error() != "running the application as nobody needs root" {
		t.Errorf("another user: %v", err)
	}
	for _, bad := range []string{"x", "-1", "4294967296", "1 "} {
		if a, err := chooseAccount("", 0, func(k string) string { return map[string]string{"SUDO_UID": bad, "SUDO_GID": "1"}[k] }); err == nil {
			t.Errorf("SUDO_UID %q: %+v", bad, a)
		}
		if a, err := chooseAccount("", 0, func(k string) string { return map[string]string{"SUDO_UID": "1", "SUDO_GID": bad}[k] }); err == nil {
			t.Errorf("SUDO_GID %q: %+v", bad, a)
		}
	}
}

func TestEnviron(t *testing.T) {
	got := environ([]string{"A=1", "B=2", "C"}, []string{"B=3", "D=x=y"}, nil, []string{"A=4"})
	if want := []string{"A=4", "B=3", "C", "D=x=y"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if v := lookup(got, "D"); v != "x=y" {
		t.Errorf("D is %q", v)
	}
}
