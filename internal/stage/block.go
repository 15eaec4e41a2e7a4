package stage

import (
	"encoding/binary"
	"errors"
)

// Block encodes a vector and what it refers to for memory at an address that a
// program knows: a Mem's, as [MemAddr] tells it. The first word is the address
// of the vector. So a program can be linked before the vector is known, and get
// it from its host.
func Block(v Vec, at uint64) ([]byte, error) {
	l := linker{base: at, out: make([]byte, 8, 1<<10), strs: map[string]uint64{}, blobs: map[Blob]uint64{}}
	if err := selfContained(v); err != nil {
		return nil, err
	}
	addr, err := l.value(nil, v)
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint64(l.out, addr)
	return l.out, nil
}

// selfContained refuses operands that only a program can have.
func selfContained(v Vec) error {
	for _, a := range v {
		switch a := a.(type) {
		case Imm, Str, Blob:
		case Vec:
			if err := selfContained(a); err != nil {
				return err
			}
		default:
			return errors.New("stage: a block refers to a program")
		}
	}
	return nil
}

// MemAddr returns the address that m has in the program of an image.
func MemAddr(image []byte, m Mem) uint64 {
	return binary.LittleEndian.Uint64(image[headerOff+8:]) + numSlots*8 + uint64(m.Off)
}
