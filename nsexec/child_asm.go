//go:build linux && (amd64 || arm64)

package nsexec

// startChild starts the child and returns its PID or a negative errno.
func startChild(c *child) int
