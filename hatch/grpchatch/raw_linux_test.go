package grpchatch

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// rawClient speaks HTTP/2 without the manners of a gRPC client.
type rawClient struct {
	*net.UnixConn
	*http2.Framer
	fields  bytes.Buffer
	encoder *hpack.Encoder
	next    uint32 // stream
}

func (c *rawClient) Close() error { return c.UnixConn.Close() }

// connect opens a connection and says nothing.
func connect(t *testing.T, h *Hatch) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: h.SocketPath(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connectRaw opens a connection and says hello.
func connectRaw(t *testing.T, h *Hatch, settings ...http2.Setting) *rawClient {
	t.Helper()
	conn := connect(t, h)
	c := &rawClient{UnixConn: conn, Framer: http2.NewFramer(conn, conn), next: 1}
	c.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.fields)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return c
}

// discard reads and drops what the server sends, until the connection ends.
func (c *rawClient) discard() (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		io.Copy(io.Discard, c.UnixConn)
		close(done)
	}()
	return done
}

// fragment encodes the headers of a call.
func (c *rawClient) fragment(method string, more ...hpack.HeaderField) []byte {
	c.fields.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "localhost"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		c.encoder.WriteField(f)
	}
	return c.fields.Bytes()
}

// call sends the headers of a call.
func (c *rawClient) call(method string, more ...hpack.HeaderField) (stream uint32, err error) {
	stream = c.next
	c.next += 2
	return stream, c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      stream,
		BlockFragment: c.fragment(method, more...),
		EndHeaders:    true,
	})
}

// encode makes a message as it is sent, with the prefix.
func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(message(len(b))[:messagePrefixLen], b...)
}
