//go:build amd64 || arm64

package stage

import (
	"bytes"
	"unsafe"
)

// stageText points at the machine's first instruction; stage_*.s sets it.
var stageText *byte

// machine returns the machine's code, copied out of this program's text. The
// assembler gives a function no size we could read, so a mark follows its last
// instruction.
func machine() ([]byte, bool) {
	const mark, limit = "PSTRNEND", 4096
	for n := 0; n < limit; n++ {
		code := unsafe.Slice(stageText, n+len(mark))
		if bytes.HasSuffix(code, []byte(mark)) {
			return bytes.Clone(code[:n]), true
		}
	}
	return nil, false
}
