package stage

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

func encodeRecord(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func TestParseRecord(t *testing.T) {
	minusTwo := uint64(math.MaxUint64 - 1)
	r, err := ParseRecord(encodeRecord(uint64(ExecError), 1, minusTwo, 127, 0xffff))
	if want := (Record{ExecError, 1, -2, 127}); r != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", r, err, want)
	}
	for kind := Failed; kind <= Terminal; kind++ {
		if r, err := ParseRecord(encodeRecord(uint64(kind), 0, 0, 0)); r.Kind != kind || err != nil {
			t.Errorf("kind %d: %+v, %v", kind, r, err)
		}
	}
	for name, b := range map[string][]byte{
		"nothing":      nil,
		"short":        encodeRecord(uint64(Failed), 0, 0, 0)[:RecordSize-1],
		"kind 0":       encodeRecord(0, 0, 0, 0),
		"unknown kind": encodeRecord(uint64(Terminal)+1, 0, 0, 0),
		"wide kind":    encodeRecord(1<<32+uint64(Failed), 0, 0, 0),
	} {
		if _, err := ParseRecord(b); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFailedIndex(t *testing.T) {
	p := sample("postern")
	image := linked(t, p, AMD64)
	first := int64(opsAddr(image))
	for i := range p.Ops {
		if got, ok := p.FailedIndex(image, Record{Kind: Failed, A: first + int64(i)*OpSize}); got != i || !ok {
			t.Errorf("operation %d: got %d, %v", i, got, ok)
		}
	}
	for _, a := range []int64{0, -1, math.MinInt64, math.MaxInt64, first - OpSize, first + 1, first + int64(len(p.Ops))*OpSize} {
		if i, ok := p.FailedIndex(image, Record{Kind: Failed, A: a}); ok {
			t.Errorf("address %#x names operation %d", a, i)
		}
	}
}

// FuzzParseRecord feeds the host's side what a hostile guest might write.
func FuzzParseRecord(f *testing.F) {
	p := sample("postern")
	image, err := p.link(AMD64, make([]byte, 300), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(nil))
	f.Add(encodeRecord(uint64(Failed), opsAddr(image), math.MaxUint64, 0))
	f.Add(encodeRecord(uint64(Exited), 1<<63, 1<<63, 1<<63))
	f.Add(make([]byte, RecordSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if i, ok := p.FailedIndex(image, r); ok && (i < 0 || i >= len(p.Ops)) {
			t.Errorf("%+v names operation %d of %d", r, i, len(p.Ops))
		}
		if err != nil {
			return
		}
		again := encodeRecord(uint64(r.Kind), uint64(r.A), uint64(r.B), uint64(r.C))
		if string(again) != string(b[:RecordSize]) {
			t.Errorf("%x was read as %+v", b, r)
		}
	})
}
