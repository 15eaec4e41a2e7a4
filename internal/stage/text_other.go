//go:build !amd64 && !arm64

package stage

func machine() ([]byte, bool) { return nil, false }
