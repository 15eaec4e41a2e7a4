package stage

import (
	"bytes"
	"strings"
	"testing"
)

// Whatever a room was used for before, an image made in it is the one that a
// program with memory of its own gives.
func TestRoom(t *testing.T) {
	programs := map[string]func(*Builder){
		"small": func(b *Builder) {
			b.Sys(Step{"write", "a"}, Write, Imm(1), Str("constant"), Imm(8))
		},
		"other constants": func(b *Builder) {
			b.Sys(Step{"write", "b"}, Write, Imm(1), Vec{Str("another"), Blob("constant")}, Imm(8))
		},
		"larger than a room": func(b *Builder) {
			for i := range 2 * typicalArgs {
				b.Sys(Step{"write", "c"}, Write, Imm(1), Str(strings.Repeat("x", i%100)), Imm(i))
			}
		},
	}
	for range 3 {
		for name, build := range programs {
			room := NewRoom()
			in, outside := room.Builder(), &Builder{}
			for _, b := range []*Builder{in, outside} {
				build(b)
				finish(b)
			}
			got, err := room.Image(in.Program())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want, err := outside.Program().Image()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: the image differs in a room that was used before", name)
			}
			room.Release()
		}
	}
}
