package stage

import (
	"encoding/binary"
	"errors"
)

// A Record is one message of a running program to its host: four words out of
// neighbouring slots, written in one piece.
type Record struct {
	Kind RecordKind
	A, B int64
	C    int64
}

// A RecordKind tells records apart.
type RecordKind uint64

const (
	Failed    RecordKind = 1 + iota // A: address of the failed operation, B: its negative errno
	Unshared                        // namespaces exist; the host may write ID maps
	Started                         // A: PID of the init as the host sees it
	ExecError                       // B: negative errno of the command's exec, C: exit status that follows
	Running                         // the command has been executed, A: its PID in its own namespace
	Exited                          // A: wait status of the command
	Terminal                        // a pseudo-terminal's master comes with this record
)

// RecordSize is the size of an encoded record in bytes.
const RecordSize = 32

// ErrRecord reports bytes that are no record.
var ErrRecord = errors.New("stage: malformed status record")

// ParseRecord decodes the record at the start of b.
func ParseRecord(b []byte) (Record, error) {
	if len(b) < RecordSize {
		return Record{}, ErrRecord
	}
	le := binary.LittleEndian
	r := Record{
		RecordKind(le.Uint64(b)), int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:])),
	}
	if r.Kind < Failed || r.Kind > Terminal {
		return r, ErrRecord
	}
	return r, nil
}

// FailedIndex returns which of p's operations a Failed record names.
func (p *Program) FailedIndex(image []byte, r Record) (int, bool) {
	first := int64(binary.LittleEndian.Uint64(image[headerOff:]))
	i := (r.A - first) / OpSize
	return int(i), r.A >= first && i < int64(len(p.Ops)) && (r.A-first)%OpSize == 0
}
