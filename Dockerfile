# Two stages: the first installs from the locks, hashes checked; the second carries the result and no build tools.
#
# A tag moves. Who wants the same bytes each time names a digest: --build-arg BASE=python:3.13-slim-trixie@sha256:...
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/build && python -m venv --without-pip /opt/proxy
WORKDIR /src
# Dependencies before the code: a change of code leaves this layer as it is.
COPY requirements/build.lock requirements/runtime.lock requirements/
RUN /opt/build/bin/pip install --require-hashes -r requirements/build.lock \
    && /opt/build/bin/pip --python /opt/proxy/bin/python install --require-hashes -r requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY proxy proxy
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/build/bin/pip --python /opt/proxy/bin/python install --no-deps --no-index dist/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="mcp-routing-proxy" \
      org.opencontainers.image.description="A header-aware routing reverse proxy for fleets of MCP servers" \
      org.opencontainers.image.licenses="Apache-2.0"
# Not named `proxy`: Debian has a user of that name, with the id 13.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin mcp-routing-proxy
COPY --from=build /opt/proxy /opt/proxy
# Modules were compiled when they were installed, and nothing writes to disk: `docker run --read-only` works.
ENV PATH=/opt/proxy/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# By number: Kubernetes' runAsNonRoot cannot tell from a name who that is.
USER 10001:10001
# 8080: the proxy, where the configuration says `listen: 0.0.0.0:8080`. 9901: admin, published only if you mean to.
EXPOSE 8080 9901
# Asks the admin address, so the configuration must keep it on port 9901. urllib would obey HTTP_PROXY; this does not.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["python", "-c", "\
import http.client, sys; \
admin = http.client.HTTPConnection('127.0.0.1', 9901, timeout=2); \
admin.request('GET', '/healthz'); \
sys.exit(admin.getresponse().status != 200)"]
# SIGTERM drains; give `docker stop -t` a little more than the configuration's `drain`.
STOPSIGNAL SIGTERM
# No init is needed before it: as process 1 the proxy takes the signals and waits for every process it started.
ENTRYPOINT ["mcp-routing-proxy"]
CMD ["serve", "-c", "/etc/mcp-routing-proxy/proxy.yaml"]
