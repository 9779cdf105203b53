"""Makes bundles: libraries with headers, licenses and metadata, as directory, archive or wheel.

It runs in build actions, and imports the packages of third_party/python/bundle.in, which no other
package of qola needs.
"""
