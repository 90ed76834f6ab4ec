package pagemap

import "path/filepath"

// FS is the /proc file system to read, by the path where it is mounted. The zero value reads /proc.
type FS string

// Path joins a name below the mount.
func (f FS) Path(elem ...string) string {
	root := string(f)
	if root == "" {
		root = "/proc"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}
