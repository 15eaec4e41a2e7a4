package workspace

import (
	"fmt"
	"strings"
)

// maxComponent is the longest file name every Unix file system takes, in bytes.
const maxComponent = 255

// clean checks a name and gives its normal form: components joined by single
// slashes, "" for the workspace itself. "." components and empty ones are
// dropped; a ".." is refused even where it would be harmless.
func clean(name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		return "", fmt.Errorf("absolute path %w", Escape)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", fmt.Errorf("NUL byte: %w", BadName)
	}
	if isClean(name) {
		return name, nil
	}
	var b strings.Builder
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return "", fmt.Errorf(`".." %w`, Escape)
		case len(part) > maxComponent:
			return "", fmt.Errorf("component longer than %d bytes: %w", maxComponent, BadName)
		}
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		b.WriteString(part)
	}
	return b.String(), nil
}

// isClean spares the usual name the copy.
func isClean(name string) bool {
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if n := i - start; n == 0 || n > maxComponent || name[start] == '.' && n <= 2 {
			return false
		}
		start = i + 1
	}
	return true
}

// split divides a clean name into its directory and its last component.
func split(path string) (dir, base string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

func depth(path string) int { return strings.Count(path, "/") + 1 }
