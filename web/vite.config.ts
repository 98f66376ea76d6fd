import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `make web-dev` serves the sources and passes calls of the API on to a running Daybell.
const api = process.env.DAYBELL_API ?? "http://127.0.0.1:8080";
const passed = { target: api, changeOrigin: true, headers: { origin: api } };

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../build/dashboard",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox128", "safari17.5"],
    // The policy of the server allows no addresses that hold their content.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
  },
  server: {
    host: "127.0.0.1",
    port: 5173,
    proxy: { "/api": passed, "/docs": passed, "/openapi.json": passed },
  },
});
