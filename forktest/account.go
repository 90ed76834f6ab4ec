package forktest

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// account is the user that the subject runs as.
type account struct {
	name, home string // empty where the user has no entry in passwd
	uid, gid   uint32
	groups     []uint32
}

// chooseAccount gives the user to run the subject as; nil: as cowaudit itself. By default that is the user who called sudo:
// an application must not run as root only because cowaudit has to. A name overrides it.
func chooseAccount(name string, euid int, getenv func(string) string) (*account, error) {
	if name != "" {
		return accountByName(name, euid)
	}
	uid := getenv("SUDO_UID")
	if euid != 0 || uid == "" || uid == "0" {
		return nil, nil
	}
	a := &account{}
	var err error
	if a.uid, err = parseID(uid); err != nil {
		return nil, fmt.Errorf("SUDO_UID: %w", err)
	}
	if a.gid, err = parseID(getenv("SUDO_GID")); err != nil {
		return nil, fmt.Errorf("SUDO_GID: %w", err)
	}
	a.groups = []uint32{a.gid}
	if u, err := user.LookupId(uid); err == nil {
		return a, a.fill(u)
	}
	return a, nil
}

func accountByName(name string, euid int) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, &ConfigError{fmt.Sprintf("there is no user %s", name)}
		}
	}
	a := &account{}
	if a.uid, err = parseID(u.Uid); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	if a.gid, err = parseID(u.Gid); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	switch {
	case int(a.uid) == euid:
		return nil, nil
	case euid != 0:
		return nil, &ConfigError{fmt.Sprintf("running the application as %s needs root", name)}
	}
	return a, a.fill(u)
}

// fill adds what passwd and group say of a user. A service of names that is not a file (LDAP, say) is not asked.
func (a *account) fill(u *user.User) error {
	a.name, a.home = u.Username, u.HomeDir
	ids, err := u.GroupIds()
	if err != nil {
		ids = nil // no group file: the user's own group stands
	}
	a.groups = []uint32{a.gid}
	for _, s := range ids {
		id, err := parseID(s)
		if err != nil {
			return fmt.Errorf("groups of %s: %w", u.Username, err)
		}
		if !slices.Contains(a.groups, id) {
			a.groups = append(a.groups, id)
		}
	}
	return nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not an id", s)
	}
	return uint32(n), nil
}

// environment gives the variables that say who the user is.
func (a *account) environment() []string {
	if a == nil || a.name == "" {
		return nil
	}
	return []string{"HOME=" + a.home, "USER=" + a.name, "LOGNAME=" + a.name}
}

// environ joins lists of variables; of one that comes twice the later stands, in the place of the first.
func environ(lists ...[]string) []string {
	var out []string
	at := map[string]int{}
	for _, list := range lists {
		for _, kv := range list {
			k, _, _ := strings.Cut(kv, "=")
			if i, ok := at[k]; ok {
				out[i] = kv
				continue
			}
			at[k] = len(out)
			out = append(out, kv)
		}
	}
	return out
}

// lookup gives a variable of an environment.
func lookup(env []string, key string) string {
	value := ""
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			value = v
		}
	}
	return value
}
