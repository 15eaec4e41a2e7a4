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
	Failed    RecordKind = 1 + iota // A: address of the failed operation, B: its negative errno, C: FailedWhy
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

// FailedStep returns the step of p that a Failed record names.
func (p *Program) FailedStep(image []byte, r Record) (s Step, ok bool) {
	s, ok = p.stepAt(image, r.A)
	if ok && r.C != 0 {
		var why Step
		why, ok = p.stepAt(image, r.C)
		s.Do = why.Do
	}
	return s, ok
}

// stepAt returns the step of the operation at an address in the image.
func (p *Program) stepAt(image []byte, at int64) (Step, bool) {
	first := int64(binary.LittleEndian.Uint64(image[headerOff:]))
	i := (at - first) / OpSize
	if at < first || i >= int64(len(p.Ops)) || (at-first)%OpSize != 0 {
		return Step{}, false
	}
	return p.Ops[i].Step, true
}
