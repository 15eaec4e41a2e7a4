package stage

import (
	"bytes"
	"strings"
	"testing"
)

// Whatever a room was used for before, an image made in it is the one that a
// program with memory of its own gives.
func TestRoom(t *testing.T) {
	if _, ok := Host(); !ok {
		t.Skip("there is no stage for this architecture, so nothing can be linked")
	}
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
			image := func(room *Room) []byte {
				b := room.Builder()
				build(b)
				finish(b)
				image, err := room.Image(b.Program())
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return bytes.Clone(image)
			}
			room := NewRoom()
			if got := image(room); !bytes.Equal(got, image(nil)) {
				t.Errorf("%s: the image differs in a room that was used before", name)
			}
			room.Release()
		}
	}
}
