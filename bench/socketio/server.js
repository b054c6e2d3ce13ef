// Presence as it is usually built on Socket.IO 4 with its Redis adapter: who is in a room is a
// hash in Redis, joins and leaves are broadcast to the room, a beat refreshes a key.
//
//   node server.js --listen 8081 --redis redis://127.0.0.1:6379

import { createServer } from "node:http";
import { parseArgs } from "node:util";

import { createAdapter } from "@socket.io/redis-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";

const { values } = parseArgs({
  options: {
    listen: { type: "string", default: "8081" },
    redis: { type: "string", default: "redis://127.0.0.1:6379" },
  },
});

const redis = await createClient({ url: values.redis }).connect();
const [publisher, subscriber] = await Promise.all([
  redis.duplicate().connect(),
  redis.duplicate().connect(),
]);

const http = createServer();
const io = new Server(http, {
  adapter: createAdapter(publisher, subscriber),
  transports: ["websocket"],
});

const members = (room) => `room:${room}`;

async function join(socket, user, room) {
  await redis.hSet(members(room), user, Date.now());
  socket.join(room);
  io.to(room).emit("join", user);
}

async function leave(socket, user, room) {
  await redis.hDel(members(room), user);
  io.to(room).emit("leave", user);
  socket.leave(room);
}

io.on("connection", async (socket) => {
  const { user, rooms = [] } = socket.handshake.auth;
  const here = new Set(rooms);
  socket.on("join", (room) => {
    here.add(room);
    join(socket, user, room);
  });
  socket.on("part", (room) => {
    here.delete(room);
    leave(socket, user, room);
  });
  socket.on("beat", async (answer) => {
    await redis.set(`alive:${user}`, "1", { EX: 45 });
    answer();
  });
  socket.on("disconnect", () => {
    for (const room of here) leave(socket, user, room);
  });
  for (const room of rooms) {
    await join(socket, user, room);
    socket.emit("state", room, await redis.hKeys(members(room)));
  }
});

http.listen(Number(values.listen), "127.0.0.1", () => console.log("ready"));
