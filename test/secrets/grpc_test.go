//go:build linux

package secrets_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// reflecting sends the authorization back in a message.
type reflecting struct {
	testpb.UnimplementedTestServiceServer
}

func (reflecting) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	for range 3 {
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte("you sent " + strings.Join(md.Get("authorization"), ","))}}); err != nil {
			return err
		}
	}
	<-s.Context().Done() // the messages do not wait for the end
	return nil
}

// TestMaskGRPC: a server of gRPC compresses its messages as the client does
// its own; values in them are covered all the same, message by message.
func TestMaskGRPC(t *testing.T) {
	s := start(t, maskPolicy, real)
	const host = "grpc.mask.test"
	server := grpc.NewServer()
	testpb.RegisterTestServiceServer(server, reflecting{})
	packed := make(chan string, 1)
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		packed <- r.Header.Get("Grpc-Encoding")
		server.ServeHTTP(w, r)
	}))
	c, err := grpc.NewClient("passthrough:///"+host+":443", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: s.Roots})),
		grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) { return s.Dial("tcp", address) }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		call, stop := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer $API_KEY"))
		stream, err := testpb.NewTestServiceClient(c).StreamingOutputCall(call, &testpb.StreamingOutputCallRequest{}, options...)
		if err != nil {
			t.Fatal(err)
		}
		want := "you sent Bearer " + strings.Repeat("*", len(real))
		for range 3 {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if got := string(m.GetPayload().GetBody()); got != want {
				t.Errorf("the client received %q", got)
			}
		}
		stop()
		if got := <-packed; (got == gzip.Name) != (options != nil) {
			t.Errorf("the client compressed by %q", got)
		}
	}
}
