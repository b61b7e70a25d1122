# Two stages: the first builds one static binary, the second holds nothing else:
# no shell, no libraries, no other file. See README, "In a container".
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /gatehouse ./cmd/gatehouse

FROM scratch
COPY --from=build /gatehouse /gatehouse
VOLUME /var/lib/gatehouse
ENTRYPOINT ["/gatehouse"]
CMD ["serve"]
