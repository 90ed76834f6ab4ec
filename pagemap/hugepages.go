package pagemap

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hugePages reports whether the machine has any hugetlb page, of any size (/sys/kernel/mm/hugepages, 2.6.27). Where that
// cannot be read it is taken to have some.
func (f FS) hugePages() bool {
	pools, err := filepath.Glob("/sys/kernel/mm/hugepages/*/nr_hugepages")
	if err != nil {
		return true
	}
	for _, p := range pools {
		b, err := os.ReadFile(p)
		if err != nil {
			return true
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || n > 0 {
			return true
		}
	}
	return false
}
