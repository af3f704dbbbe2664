# A server of one model, or of several. docs/serving.md says how to build and run it.
#
# The engine computes, on CPUs; torch is not in it.

FROM python:3.11-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /tapis
COPY . .
RUN python -m venv /venv
RUN /venv/bin/python -m pip install --no-cache-dir --require-hashes --no-deps --requirement requirements/serve.txt
RUN /venv/bin/python -m pip install --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 tapis
COPY --from=build /venv /venv
WORKDIR /tapis
USER tapis
EXPOSE 7860
HEALTHCHECK --start-period=120s CMD ["/venv/bin/python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 7860, timeout=5); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["/venv/bin/tapis", "serve", "--host", "0.0.0.0", "--allow-host", "localhost", "--run"]
