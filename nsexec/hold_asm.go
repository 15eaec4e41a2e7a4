//go:build linux && (amd64 || arm64)

package nsexec

// startHolder makes m.held the word that tells of this thread's end, and starts
// a holder, which handles no signals. It returns a PID or a negative errno.
func startHolder(m *holderMemory) int
