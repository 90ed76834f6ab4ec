package pagemap

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// KernelOption gives the value of an option ("CONFIG_KSM": "y", "m" or a number; "" where it is off) of the running
// kernel's configuration, from /proc/config.gz (CONFIG_IKCONFIG_PROC) or /boot/config-RELEASE. The error wraps
// ErrNotSupported where neither can be read.
func (f FS) KernelOption(release, name string) (string, error) {
	for _, path := range []string{f.Path("config.gz"), "/boot/config-" + release} {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		defer file.Close()
		var r io.Reader = file
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(file); err != nil {
				return "", fmt.Errorf("read %s: %w", path, err)
			}
		}
		sc := bufio.NewScanner(r)
		for sc.Scan() {
			if v, ok := strings.CutPrefix(sc.Text(), name+"="); ok {
				return strings.Trim(v, `"`), nil
			}
		}
		if err := sc.Err(); err != nil {
			return "", fmt.Errorf("read %s: %w", path, err)
		}
		return "", nil
	}
	return "", errors.Join(ErrNotSupported, errors.New("the kernel's configuration is not to be had"))
}

// pageMapcount reports whether the kernel counts the mappings of each single page. CONFIG_NO_PAGE_MAPCOUNT (6.15,
// experimental, off by default) gives it up: bit 56 and kpagecount of large folios are then estimates. A kernel that
// does not show its configuration is taken to have the default.
func pageMapcount(f FS, release string) bool {
	v, err := f.KernelOption(release, "CONFIG_NO_PAGE_MAPCOUNT")
	return err != nil || v != "y"
}
